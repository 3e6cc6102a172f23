// match_dense: what the fast path takes, the strict scan takes too and reads the same; and it is
// what we would write.
#include "fuzz.h"
#include "protobuf.h"
#include "tensorproto.h"

using namespace tensorwire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  DenseView view;
  if (!match_dense(data, size, view)) return 0;
  CHECK(view.dtype >= 0 && view.dtype < 128);  // the bindings index a table with it
  CHECK(view.rank >= 0 && view.rank <= kMaxRank);
  CHECK(view.content_offset <= size && view.content_size == size - view.content_offset);

  uint64_t bound = 1;  // the bindings multiply the dims without looking, and NumPy the bound
  for (int i = 0; i < view.rank; i++) {
    CHECK(view.dims[i] >= 0);
    if (view.dims[i])
      CHECK(!__builtin_mul_overflow(bound, static_cast<uint64_t>(view.dims[i]), &bound) &&
            bound <= INT64_MAX);
  }
  CHECK(view.bound == bound);

  TensorScan scan;
  scan_tensor(data, size, true, false, scan);
  CHECK(scan.status == kOk && scan.has_shape && !scan.unknown_rank && scan.name_size == 0);
  CHECK(scan.dtype == view.dtype && scan.rank == view.rank &&
        scan.content_size == view.content_size);
  CHECK(!scan.has_content || scan.content_offset == view.content_offset);
  for (int i = 0; i < view.rank; i++) CHECK(scan.dims[i] == view.dims[i]);
  for (size_t count : scan.counts) CHECK(count == 0);

  const int64_t content = scan.has_content ? static_cast<int64_t>(view.content_size) : -1;
  fuzz::Exact<uint8_t> header(dense_header_size(view.dtype, view.dims, view.rank, content));
  CHECK(write_dense_header(header.data(), view.dtype, view.dims, view.rank, content) ==
        header.data() + header.size());
  CHECK(header.size() == view.content_offset &&
        std::memcmp(header.data(), data, header.size()) == 0);
  return 0;
}
