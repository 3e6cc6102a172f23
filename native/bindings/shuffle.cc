// Byte shuffle.
#include "shuffle.h"

#include <vector>

#include "python.h"

namespace tensorwire {
namespace {

template <class Kernel>
void run(nb::handle object, size_t item, size_t block, nb::handle into, Kernel kernel) {
  Buffer in(object);
  PyArrayObject* out = as_array(into, NPY_UINT8, "out must be a 1-d uint8 array");
  if (!PyArray_ISWRITEABLE(out)) throw nb::value_error("an output must be writable");
  if (item == 0 || block == 0 || block % item)
    throw nb::value_error("a block is a whole number of items, at least one");
  if (static_cast<size_t>(PyArray_NBYTES(out)) != in.size())
    throw nb::value_error("as many bytes come out as go in");
  auto* to = static_cast<uint8_t*>(PyArray_DATA(out));
  if (in.size() && in.data() < to + in.size() && to < in.data() + in.size())
    throw nb::value_error("the output is other memory than the input");
  unlocked(in.size(), [&] {
    kernel(in.data(), in.size(), item, block, to);
    return 0;
  });
}

// Planes in any memory but that of `out`; one of a single byte stands for as many as there are
// items.
void merge_into(nb::list list, nb::handle into) {
  const size_t item = list.size();
  PyArrayObject* out = as_array(into, NPY_UINT8, "out must be a 1-d uint8 array");
  if (!PyArray_ISWRITEABLE(out)) throw nb::value_error("an output must be writable");
  const size_t size = static_cast<size_t>(PyArray_NBYTES(out));
  if (item == 0 || item > kMaxItem || size % item)
    throw nb::value_error("from 1 to 256 planes, and whole items");
  auto* to = static_cast<uint8_t*>(PyArray_DATA(out));
  const size_t items = size / item;
  std::vector<Buffer> buffers;
  std::vector<Plane> planes;
  for (size_t i = 0; i < item; i++) {
    const Buffer& in = buffers.emplace_back(nb::handle(list[i]));
    if (in.size() != items && in.size() != 1)
      throw nb::value_error("a plane has a byte for each item, or one for all");
    if (size && in.data() < to + size && to < in.data() + in.size())
      throw nb::value_error("the output is other memory than the input");
    planes.push_back({in.data(), in.size() == 1});
  }
  if (size)
    unlocked(size, [&] {
      merge_planes(planes.data(), item, items, to);
      return 0;
    });
}

void shuffle_into(nb::handle data, size_t item, size_t block, nb::handle out) {
  run(data, item, block, out, shuffle);
}
void unshuffle_into(nb::handle data, size_t item, size_t block, nb::handle out) {
  run(data, item, block, out, unshuffle);
}

}  // namespace

void bind_shuffle(nb::module_& m) {
  m.def("shuffle", &shuffle_into);
  m.def("unshuffle", &unshuffle_into);
  m.def("merge_planes", &merge_into);
}

}  // namespace tensorwire
