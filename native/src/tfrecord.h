// TFRecord frames: `u64 length | u32 masked crc of the length | data | u32 masked crc of the data`,
// little-endian.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensorwire {

constexpr size_t kFrameHeader = 12, kFrameFooter = 4;

struct FrameScan {
  int status;  // kOk, kTruncated (the frame at `offset` is not whole), kBadLengthCrc, kBadDataCrc,
               // kTooLong
  size_t offset;  // where the next frame begins, or the one that is at fault
};

// The first of `count` records whose data is not what was written, or `count`; the checksum of each
// stands behind it, inside the buffer.
size_t first_bad_data(const uint8_t* data, const int64_t* starts, const int64_t* sizes,
                      size_t count);

// Frames from `start` on, until `most` are found or the buffer ends: where the data of each begins,
// and how long it is. Frames longer than `longest` are refused. Without `check` the data's
// checksums are left for later.
FrameScan scan_frames(const uint8_t* data, size_t size, size_t start, bool check, uint64_t longest,
                      size_t most, std::vector<int64_t>& starts, std::vector<int64_t>& sizes);

// The first offset from `start` on where a header stands whose checksum holds and whose length is
// at most `longest`; `size` if there is none.
size_t find_frame(const uint8_t* data, size_t size, size_t start, uint64_t longest);

// What a search for a chain of frames knows of the file, and may spend.
struct ChainSearch {
  uint64_t longest;  // a record
  uint64_t stop;     // a chain that begins here or later is not searched
  uint64_t total;    // bytes of the file from the beginning of the data on
  uint64_t near;     // a frame that begins before this, and does not end in sight, counts as none
  uint64_t checks;   // bytes that may be spent on checksums of data which turn out wrong, of which
                     // each costs `guess` or more
  uint64_t guess;
};

// The same for a header that begins a chain, or might do so and cannot be judged by these bytes
// alone: the file ends with its frame, or another header follows, and none stands inside right
// behind it; or else the checksum of its data holds.
size_t find_chain(const uint8_t* data, size_t size, size_t start, ChainSearch& search);

// Writes one frame around `size` bytes, and returns where it ends; the caller has made room for
// kFrameHeader + size + kFrameFooter.
uint8_t* write_frame(uint8_t* out, const uint8_t* data, size_t size);

// The same around data that already lies at out + kFrameHeader.
uint8_t* seal_frame(uint8_t* out, size_t size);

}  // namespace tensorwire
