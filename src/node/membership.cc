#include "node/membership.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "base/text.h"
#include "node/place.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

Status CompareHellos(const Hello& first, const Hello& other, int rank) {
  if (std::strcmp(first.version, other.version) != 0 || first.abi != other.abi) {
    return Status(Code::kMismatch,
                  StrCat("the ranks differ in the version of Multiverso: rank 0 has ",
                         first.version, " (ABI ", first.abi, "), rank ", rank, " has ",
                         other.version, " (ABI ", other.abi, ")"));
  }
  return first.options.Compare("rank 0", other.options, StrCat("rank ", rank));
}

}  // namespace

Status DescribeThisPlace(Hello* hello, int rank) {
  CopyText(hello->host, HostName());
  std::string domain = MemoryDomain();
  if (const char* setting = std::getenv("MULTIVERSO_RANKS_PER_NODE")) {
    char* end = nullptr;
    errno = 0;
    const long ranks_per_node = std::strtol(setting, &end, 10);  // NOLINT: the type of strtol
    if (end == setting || *end != '\0' || errno != 0 || ranks_per_node < 1) {
      return Status(Code::kValue, StrCat("MULTIVERSO_RANKS_PER_NODE: expected a number above 0, "
                                         "received '",
                                         setting, "'"));
    }
    domain += StrCat("/", rank / ranks_per_node);
  }
  CopyText(hello->memory_domain, domain);
  return Status::Ok();
}

Result<Membership> Membership::FromHellos(const std::vector<std::string>& hellos, int rank) {
  Membership members;
  members.rank_ = rank;
  std::map<std::string, int> node_of_domain;
  Hello first;
  for (size_t i = 0; i < hellos.size(); ++i) {
    Hello hello;
    if (hellos[i].size() != sizeof(hello)) {
      return Status(Code::kMismatch,
                    StrCat("rank ", i, " runs another version of Multiverso than rank ", rank));
    }
    std::memcpy(&hello, hellos[i].data(), sizeof(hello));
    if (i == 0) first = hello;
    members.session_ = first.session;
    MV_RETURN_IF_NOT_OK(CompareHellos(first, hello, static_cast<int>(i)));
    members.version_ = hello.version;
    members.roles_.push_back(static_cast<Role>(hello.role));
    const auto inserted = node_of_domain.emplace(hello.memory_domain, members.num_nodes_);
    if (inserted.second) {
      ++members.num_nodes_;
      members.node_hosts_.emplace_back(hello.host);
    }
    members.nodes_.push_back(inserted.first->second);
  }
  members.options_ = first.options;
  members.initial_size_ = members.capacity();
  if (first.options.is_elastic) {
    // Ranks that join find the session by its name.
    if (members.name().empty()) CopyText(members.options_.name, StrCat("job-", first.pid));
    members.MakeElastic();
  }
  MV_RETURN_IF_NOT_OK(CheckSupported(members.features() | first.options.mode.features()));
  members.AssignRoles();
  members.local_rank_ = members.local_rank_of(rank);
  if (members.num_workers_ == 0 || members.num_servers_ == 0) {
    return Status(Code::kValue,
                  StrCat("role: expected at least one worker and one server among the ranks, "
                         "received ",
                         members.num_workers_, " workers and ", members.num_servers_, " servers"));
  }
  return members;
}

Membership Membership::OfJoiner(const ElasticSession& session, int rank) {
  Membership members;
  members.rank_ = rank;
  members.local_rank_ = rank;
  members.version_ = session.version;
  members.options_ = session.options;
  members.session_ = session.session;
  members.num_nodes_ = 1;
  members.node_hosts_.push_back(session.host);
  members.initial_size_ = session.initial_size;
  members.joined_ = session.joined;
  members.MakeElastic();
  members.AssignRoles();
  return members;
}

FeatureSet Membership::features() const {
  const auto has_part = [](Role role) { return role != Role::kAll; };
  return options_.features()
      .With(Feature::kNodes, spans_nodes())
      .With(Feature::kRoles, std::any_of(roles_.begin(), roles_.end(), has_part));
}

void Membership::MakeElastic() {
  options_.is_elastic = true;
  options_.on_loss = OnLoss::kContinue;
  const auto capacity = static_cast<size_t>(std::max(kMaxElasticRanks, initial_size_));
  roles_.resize(capacity, Role::kAll);
  nodes_.resize(capacity, 0);
}

int Membership::local_rank_of(int rank) const {
  const std::vector<int>& ranks = node_ranks();
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<int> Membership::service_ranks(int node) const {
  std::vector<int> ranks;
  std::copy_if(ranks_of(node).begin(), ranks_of(node).end(), std::back_inserter(ranks),
               [this](int rank) { return is_server(rank); });
  if (ranks.empty()) ranks.push_back(ranks_of(node).front());
  return ranks;
}

int Membership::leader_of(int node) const {
  const std::vector<int>& ranks = ranks_of(node);
  const auto found =
      std::find_if(ranks.begin(), ranks.end(), [this](int rank) { return is_worker(rank); });
  return found == ranks.end() ? ranks.front() : *found;
}

int Membership::num_workers_here() const {
  return static_cast<int>(std::count_if(node_ranks().begin(), node_ranks().end(),
                                        [&](int rank) { return is_worker(rank); }));
}

std::string Membership::NameRank(int rank) const {
  if (!spans_nodes()) return StrCat("rank ", rank);
  return StrCat("rank ", rank, " on ", node_hosts_[static_cast<size_t>(node_of(rank))]);
}

std::string Membership::NameNode(int node) const {
  return StrCat("node ", node, " (", NameRanks(ranks_of(node)), " on ",
                node_hosts_[static_cast<size_t>(node)], ")");
}

void Membership::AssignRoles() {
  ranks_of_nodes_.resize(static_cast<size_t>(num_nodes_));
  for (int i = 0; i < capacity(); ++i) {
    ranks_of_nodes_[static_cast<size_t>(node_of(i))].push_back(i);
    const Role role = roles_[static_cast<size_t>(i)];
    if (role != Role::kServer && num_workers_ == 0) master_rank_ = i;
    worker_ids_.push_back(role == Role::kServer ? -1 : num_workers_++);
    // Ranks that join later own no rows, so that the division of rows stays as it is.
    const bool is_server = role != Role::kWorker && i < initial_size_;
    server_ids_.push_back(is_server ? num_servers_++ : -1);
  }
}

}  // namespace multiverso
