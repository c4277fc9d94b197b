#include "table/request_message.h"

#include <gtest/gtest.h>

#include "transport/messenger.h"

namespace multiverso {
namespace {

RequestHeader ValidHeader() {
  RequestHeader header;
  header.kind = RequestKind::kGet;
  header.sender = 1;
  header.tag = kFirstCallTag;
  header.count = 3;
  header.bytes = 12;
  return header;
}

TEST(DecodeRequest, RejectsEachFieldThatIsOutOfBounds) {
  const auto rejects = [](void (*spoil)(RequestHeader*)) {
    RequestHeader spoiled = ValidHeader();
    spoil(&spoiled);
    RequestHeader header;
    return !DecodeRequest(EncodeRequest(spoiled), 2, &header);
  };
  EXPECT_FALSE(rejects([](RequestHeader*) {}));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->sender = 2; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->sender = -1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->tag = kFirstCallTag - 1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->tag = kLastCallTag + 1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->count = 0; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->count = INT64_MAX; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->bytes = kChunkBytes + 1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->bytes = -12; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->first = -1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->delta_format = static_cast<WireFormat>(3); }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->answer_format = static_cast<WireFormat>(-1); }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->answer_format = WireFormat::kInt8; }));
  // Only an add to a range carries encoded values, and these are smaller than the values.
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->answer_format = WireFormat::kBFloat16; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->delta_format = WireFormat::kInt8; }));
  EXPECT_FALSE(rejects([](RequestHeader* h) { h->width = 1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->width = -1; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) {
    h->kind = RequestKind::kAddGet;
    h->width = 1;
  }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->kind = RequestKind::kFetchAdd; }));
  EXPECT_TRUE(rejects([](RequestHeader* h) { h->kind = static_cast<RequestKind>(9); }));
  EXPECT_TRUE(rejects([](RequestHeader* h) {
    h->kind = RequestKind::kAddRows;
    h->count = kChunkIds + 1;
  }));
}

TEST(DecodeRequest, RejectsSizesInAChangeOfAnOption) {
  const auto decodes = [](int64_t first, int64_t bytes) {
    RequestHeader option = ValidHeader();
    option.kind = RequestKind::kSetHyper;
    option.first = first;
    option.bytes = bytes;
    RequestHeader header;
    return DecodeRequest(EncodeRequest(option), 2, &header);
  };
  EXPECT_TRUE(decodes(0, 0));
  EXPECT_FALSE(decodes(0, INT64_MAX));
  EXPECT_FALSE(decodes(0, -1));
  EXPECT_FALSE(decodes(int64_t{1} << 32, 0));
  EXPECT_FALSE(decodes(-1, 0));
}

TEST(DecodeRequest, AcceptsATouchOfManyRowsWithoutBytes) {
  const auto decodes = [](int64_t first, int64_t count, int64_t bytes) {
    RequestHeader touch = ValidHeader();
    touch.kind = RequestKind::kTouch;
    touch.first = first;
    touch.count = count;
    touch.bytes = bytes;
    RequestHeader header;
    return DecodeRequest(EncodeRequest(touch), 2, &header);
  };
  EXPECT_TRUE(decodes(0, int64_t{1} << 40, 0));
  EXPECT_FALSE(decodes(0, 4, 16));
  EXPECT_FALSE(decodes(0, 0, 0));
  EXPECT_FALSE(decodes(-1, 4, 0));
}

TEST(DecodeRequest, AcceptsASmallPayloadOnlyBehindTheHeader) {
  RequestHeader add = ValidHeader();
  add.kind = RequestKind::kAddRows;
  EXPECT_EQ(add.inline_bytes(), 3 * 8 + 12);
  const std::string alone = EncodeRequest(add);
  const auto accepts = [&](size_t payload) {
    RequestHeader header;
    return DecodeRequest(alone + std::string(payload, 'x'), 2, &header);
  };
  EXPECT_TRUE(accepts(36));
  EXPECT_FALSE(accepts(0));
  EXPECT_FALSE(accepts(35));
  EXPECT_FALSE(accepts(37));
  add.bytes = kInlineBytes;
  EXPECT_EQ(add.inline_bytes(), 0);
  RequestHeader header;
  EXPECT_TRUE(DecodeRequest(EncodeRequest(add), 2, &header));
}

TEST(Reply, CarriesAStatus) {
  EXPECT_TRUE(Reply::Of(5, Status::Ok()).status().ok());
  EXPECT_EQ(Reply::Of(5, Status::Ok()).call, 5U);
  const Status status = Reply::Of(5, Status(Code::kIndex, std::string(1000, 'x'))).status();
  EXPECT_EQ(status.code(), Code::kIndex);
  EXPECT_EQ(status.text().size(), sizeof(Reply::text) - 1);
  Reply garbage;
  garbage.code = 7;
  for (char& letter : garbage.text) letter = 'y';
  EXPECT_EQ(garbage.status().code(), Code::kTransport);
}

}  // namespace
}  // namespace multiverso
