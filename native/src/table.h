// Blocks of a LevelDB table (keys that share prefixes with the one before, restarts at the end),
// and the entries of a TensorFlow checkpoint's index, which is such a table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensorwire {

struct BlockSize {
  int status;
  size_t offset;  // of the fault
  size_t entries;
  size_t keys;  // bytes of all keys, each written out in full
  size_t end;   // where the entries stop and the restarts begin
};

// Walks a block once: how much there is, and that its restarts are where entries with a whole key
// begin. Keys of more than `room` bytes in all are refused, because a few bytes may stand for a
// very long one.
BlockSize measure_block(const uint8_t* in, size_t size, size_t room);

// One entry after the other: the key in full, and where the value lies. `size` is measure_block's:
// what another thread changes in between ends in an error. Keys must ascend.
class BlockWalk {
 public:
  BlockWalk(const uint8_t* in, const BlockSize& size)
      : in_(in), at_(0), end_(size.end), room_(size.keys) {}
  bool next();  // false with `status` set if something is wrong; not to be called more often than
                // there are entries

  int status = 0;
  size_t offset = 0;  // of the fault
  std::vector<uint8_t> key;
  size_t start = 0, length = 0;  // of the value

 private:
  const uint8_t* in_;
  size_t at_, end_, room_;
  bool first_ = true;
};

constexpr size_t kMaxEntryRank = 254;

// A BundleEntryProto: what TensorFlow says of one tensor.
struct BundleEntry {
  int64_t dtype = 0, shard = 0, offset = 0, size = 0, crc = 0, elements = 1, slices = 0;
  size_t rank = 0;
  int64_t dims[kMaxEntryRank];

  // Whether it fits itself: a dtype that has a place in `itemsizes` (256 of them; 0 for no dtype,
  // 255 for one whose size does not follow from its shape), a data file that there is, and as many
  // bytes as the shape needs, which are none where the tensor is in slices.
  int check(const uint8_t* itemsizes, int64_t shards) const;
};

// False with `status` and `offset` set if the message is not sound: fields twice, negative numbers,
// a shape larger than any memory.
bool read_bundle_entry(const uint8_t* in, size_t size, BundleEntry& entry, int& status,
                       size_t& offset);

}  // namespace tensorwire
