// Raw Snappy blocks.
#include "snappy.h"

#include "protobuf.h"
#include "python.h"

namespace tensorwire {
namespace {

// -> (status, offset, the data or None)
nb::tuple snappy_decode(nb::handle object, size_t limit) {
  Buffer in(object);
  const SnappyHead head = read_snappy_head(in.data(), in.size(), limit);
  if (head.status != kOk) return nb::make_tuple(head.status, head.offset, nb::none());
  uint8_t* out;
  nb::bytes data = new_bytes(head.size, out);
  const SnappyOutcome o = unlocked(
      head.size, [&] { return read_snappy_body(in.data(), in.size(), head.body, out, head.size); });
  if (o.status != kOk) return nb::make_tuple(o.status, o.offset, nb::none());
  return nb::make_tuple(o.status, o.offset, data);
}

}  // namespace

void bind_snappy(nb::module_& m) { m.def("snappy_decode", &snappy_decode); }

}  // namespace tensorwire
