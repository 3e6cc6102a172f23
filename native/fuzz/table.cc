// measure_block, BlockWalk and read_bundle_entry on any block: the keys ascend, every value lies
// inside, and no byte outside is touched.
#include "table.h"

#include "fuzz.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

void check_entry(const uint8_t* data, size_t size) {
  const fuzz::Exact<uint8_t> exact(data, size);
  BundleEntry entry;
  int status = kOk;
  size_t offset = 0;
  if (!read_bundle_entry(exact.data(), size, entry, status, offset)) {
    CHECK(status != kOk && offset <= size);
    return;
  }
  CHECK(entry.rank <= kMaxEntryRank && entry.offset >= 0 && entry.size >= 0 && entry.shard >= 0 &&
        entry.elements >= 0);
  CHECK(entry.size <= INT64_MAX - entry.offset && entry.crc >= 0 && entry.crc <= UINT32_MAX);
  unsigned __int128 elements = 1;
  for (size_t i = 0; i < entry.rank; i++) {
    CHECK(entry.dims[i] >= 0);
    elements *= static_cast<uint64_t>(entry.dims[i]);
  }
  CHECK(elements == static_cast<uint64_t>(entry.elements));
  fuzz::Exact<uint8_t> itemsizes(256, 4);
  itemsizes[7] = 255;
  itemsizes[0] = 0;
  const int found = entry.check(itemsizes.data(), 2);
  CHECK(found == kOk || found == kNoDtype || found == kNoShard || found == kWrongSize);
  if (found == kOk && !entry.slices && entry.dtype != 7)
    CHECK(entry.size / 4 == entry.elements && entry.size % 4 == 0);
}

void check_block(const uint8_t* data, size_t size, size_t room) {
  const fuzz::Exact<uint8_t> exact(data, size);
  const BlockSize found = measure_block(exact.data(), size, room);
  CHECK(found.offset <= size);
  if (found.status != kOk) return;
  CHECK(found.keys <= room && found.end + 8 <= size && found.entries <= size);
  BlockWalk walk(exact.data(), found);
  std::vector<uint8_t> last;
  size_t keys = 0, end = 0;
  for (size_t i = 0; i < found.entries; i++) {
    if (!walk.next()) {
      CHECK(walk.status == kKeyOrder && walk.offset <= size);
      return;
    }
    CHECK(i == 0 || last < walk.key);
    CHECK(walk.start >= end && walk.start + walk.length <= found.end);
    end = walk.start + walk.length;
    keys += walk.key.size();
    last = walk.key;
    check_entry(exact.data() + walk.start, walk.length);
  }
  CHECK(keys == found.keys && end == found.end);
  CHECK(found.keys == 0 || measure_block(exact.data(), size, found.keys - 1).status == kOverLimit);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_block(data, size, 1 << 20);
  check_block(data, size, 10);
  check_entry(data, size);
  return 0;
}
