// A dense header for any dtype and dims (`rank | dtype | content size | dims`): the size is as
// promised, and it reads back the same.
#include "fuzz.h"
#include "protobuf.h"
#include "tensorproto.h"

using namespace tensorwire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const int rank = source.take<uint8_t>() % (kMaxRank + 1);
  const int64_t dtype = source.take<int8_t>();  // a negative enum is written too, in ten bytes
  const int64_t content = source.take<int16_t>() / 64;
  int64_t dims[kMaxRank];
  uint64_t elements = 1;
  bool is_sound = dtype >= 0, fits = true;
  for (int i = 0; i < rank; i++) {
    // Mostly small dims, else no product would fit; 0x80 says that a whole number follows.
    const int8_t brief = source.take<int8_t>();
    dims[i] = brief == INT8_MIN ? source.take<int64_t>() : brief;
    is_sound = is_sound && dims[i] >= 0;
    if (dims[i] > 0)
      fits = fits && !__builtin_mul_overflow(elements, static_cast<uint64_t>(dims[i]), &elements) &&
             elements <= INT64_MAX;
  }

  const size_t header = dense_header_size(dtype, dims, rank, content),
               body = content > 0 ? static_cast<size_t>(content) : 0;
  fuzz::Exact<uint8_t> exact(header), message(header + body);
  CHECK(write_dense_header(exact.data(), dtype, dims, rank, content) == exact.data() + header);
  std::memcpy(message.data(), exact.data(), header);

  DenseView view;
  CHECK(match_dense(message.data(), message.size(), view) == (is_sound && fits));
  TensorScan scan;
  scan_tensor(message.data(), message.size(), true, false, scan);
  bool negative = false;
  for (int i = 0; i < rank; i++) negative = negative || dims[i] < 0;
  CHECK(scan.status == (negative ? kNegativeDim : kOk));
  if (negative) return 0;
  CHECK(scan.dtype == dtype && scan.rank == rank && scan.has_content == (content >= 0) &&
        scan.content_size == body);
  CHECK(content < 0 || scan.content_offset == header);
  for (int i = 0; i < rank; i++) CHECK(scan.dims[i] == dims[i]);
  if (!is_sound || !fits) return 0;
  CHECK(view.dtype == dtype && view.rank == rank && view.content_offset == header &&
        view.content_size == body);
  for (int i = 0; i < rank; i++) CHECK(view.dims[i] == dims[i]);
  return 0;
}
