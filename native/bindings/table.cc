// LevelDB blocks, and what TensorFlow's checkpoints keep in them.
#include "table.h"

#include "protobuf.h"
#include "python.h"

namespace tensorwire {
namespace {

constexpr size_t kShapes =
    64;  // of a model's many variables most have one of a few shapes, and share its tuple

nb::tuple failed(int status, size_t offset, nb::object what = nb::none()) {
  return nb::make_tuple(status, offset, what);
}

nb::object bytes_of(const std::vector<uint8_t>& key) { return nb::bytes(key.data(), key.size()); }

// -> (status, offset, keys, key_offsets, starts, sizes), or (status, offset, None)
nb::tuple table_block(nb::handle object, size_t room) {
  Buffer in(object);
  const BlockSize size =
      unlocked(in.size(), [&] { return measure_block(in.data(), in.size(), room); });
  if (size.status != kOk) return failed(size.status, size.offset);
  uint8_t* keys;
  int64_t *key_offsets, *starts, *sizes;
  nb::bytes key_bytes = new_bytes(size.keys, keys);
  nb::object offsets_array = new_array(NPY_INT64, size.entries + 1, key_offsets);
  nb::object starts_array = new_array(NPY_INT64, size.entries, starts);
  nb::object sizes_array = new_array(NPY_INT64, size.entries, sizes);
  BlockWalk walk(in.data(), size);
  const bool whole = unlocked(in.size(), [&] {
    size_t used = 0;
    key_offsets[0] = 0;
    for (size_t i = 0; i < size.entries; i++) {
      if (!walk.next()) return false;
      if (walk.key.size()) std::memcpy(keys + used, walk.key.data(), walk.key.size());
      used += walk.key.size();
      key_offsets[i + 1] = static_cast<int64_t>(used);
      starts[i] = static_cast<int64_t>(walk.start);
      sizes[i] = static_cast<int64_t>(walk.length);
    }
    if (used != size.keys) walk.status = kNoSpace;
    return used == size.keys;
  });
  if (!whole) return failed(walk.status, walk.offset);
  return nb::make_tuple(static_cast<int>(kOk), size.end, key_bytes, offsets_array, starts_array,
                        sizes_array);
}

// Text, or bytes for a key that starts with 0; not valid where it should be text and is not.
nb::object key_object(const uint8_t* key, size_t size) {
  const char* text = reinterpret_cast<const char*>(key);
  const Py_ssize_t length = static_cast<Py_ssize_t>(size);
  if (size && key[0] == 0) return nb::steal(PyBytes_FromStringAndSize(text, length));
  uint8_t high = 0;
  for (size_t i = 0; i < size; i++) high |= key[i];
  if (high < 0x80 && size) {  // what names mostly are, and quicker than asking for it
    PyObject* plain = PyUnicode_New(length, 127);
    if (!plain) throw nb::python_error();
    std::memcpy(PyUnicode_1BYTE_DATA(plain), key, size);
    return nb::steal(plain);
  }
  PyObject* found = PyUnicode_DecodeUTF8(text, length, nullptr);
  if (!found) PyErr_Clear();
  return nb::steal(found);
}

nb::object shape_object(const BundleEntry& entry) {
  nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(entry.rank)));
  if (!shape.is_valid()) throw nb::python_error();
  for (size_t d = 0; d < entry.rank; d++) {
    PyObject* dim = PyLong_FromLongLong(entry.dims[d]);
    if (!dim) throw nb::python_error();
    PyTuple_SET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(d), dim);
  }
  return shape;
}

// Tuples of shapes that were seen lately.
class Shapes {
 public:
  nb::object get(const BundleEntry& entry) {
    if (entry.rank > kDims) return shape_object(entry);
    uint64_t hash = entry.rank;
    for (size_t d = 0; d < entry.rank; d++)
      hash = (hash ^ static_cast<uint64_t>(entry.dims[d])) * 0x9e3779b97f4a7c15u;
    Slot& slot = slots_[hash >> 58];
    if (!slot.shape.is_valid() || slot.rank != entry.rank ||
        std::memcmp(slot.dims, entry.dims, entry.rank * sizeof(int64_t)) != 0) {
      slot.shape = shape_object(entry);
      slot.rank = entry.rank;
      std::memcpy(slot.dims, entry.dims, entry.rank * sizeof(int64_t));
    }
    return slot.shape;
  }

 private:
  static constexpr size_t kDims = 8;
  struct Slot {
    nb::object shape;
    size_t rank = 0;
    int64_t dims[kDims];
  };
  Slot slots_[kShapes];
};

// -> (status, offset, last key, names, shapes, places, crcs, kinds), or (status, offset, the key of
// the entry that is wrong)
//   names   text without the suffix, bytes for keys that begin with 0
//   places  int64 [3, n]: shard, offset, size
//   kinds   uint8 [4, n]: dtype, whether the name had the suffix, whether the tensor is in slices,
//   whether the name has a dot
nb::tuple bundle_block(nb::handle block, size_t room, size_t first, nb::handle suffix,
                       nb::handle itemsizes, int64_t shards) {
  Buffer in(block), tail(suffix), widths(itemsizes);
  if (widths.size() != 256) throw nb::value_error("256 item sizes");
  const BlockSize size = measure_block(in.data(), in.size(), room);
  if (size.status != kOk) return failed(size.status, size.offset);
  if (first > size.entries) throw nb::value_error("fewer entries than are to be left out");
  const size_t n = size.entries - first;
  int64_t* places;
  uint32_t* crcs;
  uint8_t* kinds;
  nb::object place_array = new_array(NPY_INT64, 3 * n, places),
             crc_array = new_array(NPY_UINT32, n, crcs),
             kind_array = new_array(NPY_UINT8, 4 * n, kinds);
  nb::object names = nb::steal(PyList_New(static_cast<Py_ssize_t>(n))),
             shapes = nb::steal(PyList_New(static_cast<Py_ssize_t>(n)));
  if (!names.is_valid() || !shapes.is_valid()) throw nb::python_error();
  Shapes known;
  BlockWalk walk(in.data(), size);
  for (size_t i = 0; i < size.entries; i++) {
    if (!walk.next()) return failed(walk.status, walk.offset);
    if (i < first) continue;
    BundleEntry entry;
    int status = kOk;
    size_t offset = 0;
    if (read_bundle_entry(in.data() + walk.start, walk.length, entry, status, offset))
      status = entry.check(widths.data(), shards);
    if (status != kOk) return failed(status, walk.start + offset, bytes_of(walk.key));
    const uint8_t* key = walk.key.data();
    size_t length = walk.key.size();
    const bool stripped = tail.size() && length >= tail.size() && key[0] != 0 &&
                          std::memcmp(key + length - tail.size(), tail.data(), tail.size()) == 0;
    if (stripped) length -= tail.size();
    nb::object name = key_object(key, length);
    if (!name.is_valid()) return failed(kBadUtf8, walk.start, bytes_of(walk.key));
    const size_t row = i - first;
    places[row] = entry.shard;
    places[n + row] = entry.offset;
    places[2 * n + row] = entry.size;
    crcs[row] = static_cast<uint32_t>(entry.crc);
    kinds[row] = static_cast<uint8_t>(entry.dtype);
    kinds[n + row] = stripped;
    kinds[2 * n + row] = entry.slices != 0;
    kinds[3 * n + row] = length && std::memchr(key, '.', length) != nullptr;
    PyList_SET_ITEM(names.ptr(), static_cast<Py_ssize_t>(row), name.release().ptr());
    PyList_SET_ITEM(shapes.ptr(), static_cast<Py_ssize_t>(row), known.get(entry).release().ptr());
  }
  return nb::make_tuple(static_cast<int>(kOk), size.end, bytes_of(walk.key), names, shapes,
                        place_array, crc_array, kind_array);
}

}  // namespace

void bind_table(nb::module_& m) {
  m.def("table_block", &table_block);
  m.def("bundle_block", &bundle_block);
}

}  // namespace tensorwire
