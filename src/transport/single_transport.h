// SingleTransport: the Transport of a job of one rank, which needs no MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace multiverso {

class SingleTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string Describe() const override { return "single process"; }

  Result<std::vector<std::string>> Exchange(const std::string& mine,
                                            const WaitLimit& /*limit*/) override {
    return std::vector<std::string>{mine};
  }

  Status CheckCanConnect() const override { return NoOtherRank(); }
  Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& /*limit*/) override {
    return NoOtherRank();
  }

 private:
  static Status NoOtherRank() {
    return Status(Code::kInternal, "a job of one rank has no other rank to connect to");
  }
};

}  // namespace multiverso
