// The bridge between the kernels and Python; only this folder knows nanobind and NumPy's C API.
// Buffers and integers go in, bytes, arrays and (status, offset) come out; loops over data run
// without the GIL. `_native.pyi` says what each function promises.
#define TENSORWIRE_IMPORTS_NUMPY
#include "python.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "crc32c.h"
#include "protobuf.h"
#include "safetensors.h"
#include "string_vals.h"
#include "tensorproto.h"
#include "typed.h"

using namespace tensorwire;
using namespace std::literals;

namespace {

static_assert(kFastRank == kHeaderRank);
constexpr size_t kMaxHeader = 100'000'000,
                 kMaxNames =
                     1'000'000;  // the defaults of Limits; callers with others go the general way

// The dtype table, as given by dtypes.py.
struct Row {
  PyArray_Descr* descr;
  std::string safetensors;  // empty: it has none
  bool checked;             // has bytes that are no value: bool, and the types below a byte
};
constexpr int kTypes = 2048;
constexpr int kEnums = 128;
int8_t enum_of_type[kTypes];     // NumPy type number -> TensorFlow's enum, 0 for none
const Row* row_of_type[kTypes];  // NumPy type number -> row
const Row* row_of_enum[kEnums];  // TensorFlow's enum -> row
std::vector<std::unique_ptr<const Row>> rows;

void register_dtype(nb::handle dtype, int tf_enum, const char* safetensors, bool writes,
                    bool checked) {
  if (!PyArray_DescrCheck(dtype.ptr())) throw nb::type_error("register_dtype needs a numpy.dtype");
  auto* descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
  const int type = descr->type_num;
  if (tf_enum < 0 || tf_enum >= kEnums || type < 0 || type >= kTypes)
    throw nb::value_error("dtype out of range");
  Py_INCREF(descr);
  rows.push_back(std::make_unique<const Row>(Row{descr, safetensors, checked}));
  if (tf_enum) row_of_enum[tf_enum] = rows.back().get();
  if (!writes) return;
  row_of_type[type] = rows.back().get();
  enum_of_type[type] = static_cast<int8_t>(tf_enum);
}

const Row* row_of_name(std::string_view name) {
  for (const auto& row : rows)
    if (!row->safetensors.empty() && row->safetensors == name) return row.get();
  return nullptr;
}

uint64_t count_elements(const int64_t* dims, int rank) {
  uint64_t count = 1;
  for (int i = 0; i < rank; i++)
    count *= static_cast<uint64_t>(dims[i]);  // the caller knows that it fits
  return count;
}

// ndarray -> serialized TensorProto in one step, or None when the array is not one that can be
// copied as it lies.
nb::object encode_dense(nb::handle object) {
  if (!PyArray_CheckExact(object.ptr())) return nb::none();
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  const int type = PyArray_TYPE(array);
  if (type < 0 || type >= kTypes || !enum_of_type[type] || !PyArray_ISCARRAY_RO(array))
    return nb::none();
  const int rank = PyArray_NDIM(array);
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  const auto* dims = reinterpret_cast<const int64_t*>(PyArray_DIMS(array));
  const size_t bytes = static_cast<size_t>(PyArray_NBYTES(array));
  const int64_t content = bytes ? static_cast<int64_t>(bytes) : -1;
  const size_t header = dense_header_size(enum_of_type[type], dims, rank, content);
  if (header + bytes > INT32_MAX) return nb::none();
  uint8_t* out;
  nb::bytes result = new_bytes(header + bytes, out);
  uint8_t* body = write_dense_header(out, enum_of_type[type], dims, rank, content);
  const void* from = PyArray_DATA(array);
  unlocked(bytes, [&] {
    if (bytes) std::memcpy(body, from, bytes);
    return 0;
  });
  return result;
}

nb::bytes dense_header(int64_t dtype, nb::tuple shape, int64_t content) {
  const size_t rank = shape.size();
  if (rank > kMaxRank) throw nb::value_error("rank past 254");
  int64_t dims[kMaxRank];
  for (size_t i = 0; i < rank; i++) dims[i] = nb::cast<int64_t>(shape[i]);
  uint8_t* out;
  nb::bytes result =
      new_bytes(dense_header_size(dtype, dims, static_cast<int>(rank), content), out);
  write_dense_header(out, dtype, dims, static_cast<int>(rank), content);
  return result;
}

// Serialized TensorProto -> ndarray in one step, or None when it is not the form that TensorFlow
// writes, which then goes the general way. The caller has checked nothing; everything is checked
// here.
nb::object decode_dense(nb::handle object, bool copy) {
  Buffer in(object);
  DenseView view;
  if (!match_dense(in.data(), in.size(), view)) return nb::none();
  const Row* row = row_of_enum[view.dtype];
  if (!row || row->checked || view.rank > kFastRank) return nb::none();
  const size_t item = static_cast<size_t>(PyDataType_ELSIZE(row->descr));
  if (view.bound > INT64_MAX / item ||
      count_elements(view.dims, view.rank) * item != view.content_size)
    return nb::none();
  nb::object base;
  return take_array(object, base, row->descr, view.rank, view.dims, in.data() + view.content_offset,
                    view.content_size, copy);
}

// A safetensors header in the making, entry by entry, and the arrays whose data follow it.
class NamedWriter {
 public:
  // False if the array or its name is not plain: another way must be found to write it.
  bool add(std::string_view name, nb::handle object) {
    if (!PyArray_CheckExact(object.ptr())) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
    const int type = PyArray_TYPE(array);
    const Row* row = type < 0 || type >= kTypes ? nullptr : row_of_type[type];
    if (!row || row->safetensors.empty() || !PyArray_ISCARRAY_RO(array) || !is_plain_name(name))
      return false;
    const size_t item = static_cast<size_t>(PyDataType_ELSIZE(row->descr)),
                 size = static_cast<size_t>(PyArray_NBYTES(array));
    if (item > last_item_)
      return false;  // it lies before the last one in the file: more words are needed to keep the
                     // order
    last_item_ = item;
    if (text_.size() > 9) text_.push_back(',');
    append_entry(text_, name, row->safetensors,
                 reinterpret_cast<const int64_t*>(PyArray_DIMS(array)), PyArray_NDIM(array), size_,
                 size_ + size);
    size_ += size;
    parts_.push_back(nb::borrow(object));
    return text_.size() <= kMaxHeader;
  }

  bool add(nb::handle key, nb::handle object) {
    Py_ssize_t size;
    const char* name =
        PyUnicode_CheckExact(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), &size) : nullptr;
    if (name) return add({name, static_cast<size_t>(size)}, object);
    PyErr_Clear();  // a lone surrogate: the general way says so
    return false;
  }

  void metadata(std::string_view object) { text_.append("\"__metadata__\":").append(object); }

  // The whole header, padded; empty if it is past the limit.
  std::string_view header() {
    text_.push_back('}');
    text_.append((64 - text_.size() % 64) % 64, ' ');
    const uint64_t size = text_.size() - 8;
    if (size > kMaxHeader) return {};
    std::memcpy(text_.data(), &size, 8);  // little-endian hosts
    return text_;
  }

  nb::object file() {
    const std::string_view head = header();
    if (head.empty()) return nb::none();
    uint8_t* out;
    nb::bytes result = new_bytes(head.size() + size_, out);
    unlocked(size_, [&] {
      std::memcpy(out, head.data(), head.size());
      uint8_t* to = out + head.size();
      for (const nb::object& part : parts_) {
        auto* array = reinterpret_cast<PyArrayObject*>(part.ptr());
        const size_t size = static_cast<size_t>(PyArray_NBYTES(array));
        if (size) std::memcpy(to, PyArray_DATA(array), size);
        to += size;
      }
      return 0;
    });
    return result;
  }

 private:
  std::string text_ = "\0\0\0\0\0\0\0\0{"s;
  std::vector<nb::object> parts_;
  uint64_t size_ = 0;
  size_t last_item_ = SIZE_MAX;
};

// One array, or a dict of them that needs no more words than its names -> the safetensors file in
// one step, else None.
nb::object encode_named(nb::handle value) {
  NamedWriter writer;
  if (!PyDict_CheckExact(value.ptr())) {
    writer.metadata(kLoneMetadata);
    return writer.add("tensor"sv, value) ? writer.file() : nb::none();
  }
  PyObject *key, *item;
  Py_ssize_t position = 0;
  while (PyDict_Next(value.ptr(), &position, &key, &item))
    if (!writer.add(nb::handle(key), item)) return nb::none();
  return writer.file();
}

// The header alone, for arrays that are in the order of the file; `metadata` is a JSON object or
// nothing.
nb::object named_header(nb::list names, nb::list arrays, nb::bytes metadata) {
  if (names.size() != arrays.size()) throw nb::value_error("as many names as arrays");
  NamedWriter writer;
  if (metadata.size()) writer.metadata({metadata.c_str(), metadata.size()});
  for (size_t i = 0; i < names.size(); i++)
    if (!writer.add(names[i], arrays[i])) return nb::none();
  const std::string_view head = writer.header();
  return head.empty() ? nb::object(nb::none()) : nb::object(nb::bytes(head.data(), head.size()));
}

struct NamedFile {
  nb::dict arrays;
  std::string_view metadata;
};

// A safetensors file with a plain header and its tensors in the order of their data. False for any
// other, valid or not.
bool read_named_file(nb::handle object, const Buffer& in, bool copy, NamedFile& out) {
  uint64_t text;
  if (in.size() < 10) return false;
  std::memcpy(&text, in.data(), 8);
  if (text > kMaxHeader || text > in.size() - 8) return false;
  const uint8_t* data = in.data() + 8 + text;
  const size_t available = in.size() - 8 - text;
  HeaderReader reader({reinterpret_cast<const char*>(in.data()) + 8, static_cast<size_t>(text)});
  HeaderEntry entry;
  nb::object base;
  uint64_t at = 0;
  size_t count = 0;
  for (;;) {
    const HeaderReader::Step step = reader.next(entry);
    if (step == HeaderReader::kOther) return false;
    if (step == HeaderReader::kEnd) break;
    const Row* row = row_of_name(entry.dtype);
    if (!row || entry.start != at || entry.stop < at || entry.stop > available ||
        ++count > kMaxNames)
      return false;
    const size_t item = static_cast<size_t>(PyDataType_ELSIZE(row->descr)), size = entry.stop - at;
    if (entry.bound > INT64_MAX / item || count_elements(entry.dims, entry.rank) * item != size)
      return false;
    if (row->checked)
      for (size_t i = 0; i < size; i++)
        if (data[at + i] > 1) return false;
    PyObject* name = PyUnicode_DecodeUTF8(entry.name.data(),
                                          static_cast<Py_ssize_t>(entry.name.size()), nullptr);
    if (!name) {
      PyErr_Clear();
      return false;
    }
    nb::object key = nb::steal(name);
    out.arrays[key] =
        take_array(object, base, row->descr, entry.rank, entry.dims, data + at, size, copy);
    at = entry.stop;
  }
  out.metadata = reader.metadata();
  return at == available &&
         out.arrays.size() == count;  // bytes behind the last tensor; a name that stands twice
}

nb::object decode_named(nb::handle object, bool copy) {
  Buffer in(object);
  NamedFile file;
  if (!read_named_file(object, in, copy, file)) return nb::none();
  if (file.metadata.empty()) return file.arrays;
  if (file.metadata != kLoneMetadata || file.arrays.size() != 1 || !file.arrays.contains("tensor"))
    return nb::none();
  return file.arrays["tensor"];
}

// -> (metadata, arrays by name), for files that say more.
nb::object read_named(nb::handle object, bool copy) {
  Buffer in(object);
  NamedFile file;
  if (!read_named_file(object, in, copy, file)) return nb::none();
  return nb::make_tuple(nb::bytes(file.metadata.data(), file.metadata.size()), file.arrays);
}

nb::tuple tensor_scan(nb::handle object, bool strict, bool stop_at_strings) {
  Buffer in(object);
  TensorScan scan;
  unlocked(in.size(), [&] {
    scan_tensor(in.data(), in.size(), strict, stop_at_strings, scan);
    return 0;
  });
  nb::list dims, counts;
  for (int i = 0; i < scan.rank; i++) dims.append(scan.dims[i]);
  for (size_t count : scan.counts) counts.append(count);
  return nb::make_tuple(scan.status, scan.offset, scan.dtype, nb::tuple(dims), scan.unknown_rank,
                        scan.name_offset, scan.name_size, scan.has_content, scan.content_offset,
                        scan.content_size, nb::tuple(counts));
}

nb::tuple typed_vals(nb::handle object, unsigned field, bool strict, size_t width, int64_t lowest,
                     uint64_t highest, size_t room) {
  const size_t fixed = field == 5 || field == 9    ? 4
                       : field == 6 || field == 12 ? 8
                       : field == 18               ? 1
                                                   : 0;
  if ((width != 1 && width != 2 && width != 4 && width != 8) || (fixed && width != fixed))
    throw nb::value_error("no such width in this field");
  Buffer in(object);
  if (room > in.size()) throw nb::value_error("more values than bytes");  // each takes one at least
  uint8_t* out;
  nb::object array = new_array(NPY_UINT8, width * room, out);
  const TypedOutcome o = unlocked(in.size(), [&] {
    return read_typed(in.data(), in.size(), field, strict, width, lowest, highest, out, room);
  });
  return nb::make_tuple(o.status, o.offset, o.count, array);
}

struct StringsIn {
  Buffer data;
  const int64_t* offsets;
  size_t n;
  StringsIn(nb::handle data_, nb::handle offsets_) : data(data_) {
    auto* array = as_array(offsets_, NPY_INT64, "offsets must be a contiguous int64 vector");
    if (PyArray_DIM(array, 0) < 1) throw nb::value_error("offsets must hold at least one number");
    offsets = static_cast<const int64_t*>(PyArray_DATA(array));
    n = static_cast<size_t>(PyArray_DIM(array, 0)) - 1;
  }
};

// Either form of a string tensor: `prefix`, then its strings. The size is taken before the GIL is
// released and holds while writing.
template <class Size, class Write>
nb::bytes write_strings(nb::handle prefix_, const StringsIn& in, Size size, Write write) {
  Buffer prefix(prefix_);
  const size_t bytes = unlocked(8 * in.n, [&] { return size(in.offsets, in.n); });
  if (bytes > (size_t{1} << 62)) throw nb::value_error("offsets must not decrease");
  uint8_t* out;
  nb::bytes result = new_bytes(prefix.size() + bytes, out);
  if (prefix.size()) std::memcpy(out, prefix.data(), prefix.size());
  const Outcome o = unlocked(bytes, [&] { return write(out + prefix.size(), bytes); });
  if (o.status != kOk || o.used != bytes)
    throw nb::value_error("the strings changed while they were being written");
  return result;
}

nb::bytes string_vals(nb::handle prefix, nb::handle data, nb::handle offsets) {
  const StringsIn in(data, offsets);
  return write_strings(prefix, in, string_vals_size, [&](uint8_t* out, size_t room) {
    return write_string_vals(out, room, in.data.data(), in.data.size(), in.offsets, in.n);
  });
}

nb::bytes string_lengths(nb::handle prefix, nb::handle data, nb::handle offsets) {
  const StringsIn in(data, offsets);
  return write_strings(prefix, in, string_lengths_size, [&](uint8_t* out, size_t room) {
    return write_string_lengths(out, room, in.data.size(), in.offsets, in.n);
  });
}

// -> (status, offset, count, used, data, offsets); `room` bounds the strings' bytes.
nb::tuple parse_string_vals(nb::handle object, size_t start, bool only_strings, size_t n,
                            size_t room) {
  Buffer in(object);
  if (start > in.size() || n > in.size() || room > in.size())
    throw nb::value_error("more strings than bytes");
  uint8_t* data;
  int64_t* offsets;
  nb::object data_array = new_array(NPY_UINT8, room, data);
  nb::object offsets_array = new_array(NPY_INT64, n + 1, offsets);
  const Outcome o = unlocked(in.size(), [&] {
    return read_string_vals(in.data(), in.size(), start, only_strings, n, data, room, offsets);
  });
  return nb::make_tuple(o.status, o.offset, o.count, o.used, data_array, offsets_array);
}

// -> (status, offset, count, starts, sizes)
nb::tuple find_strings(nb::handle object, size_t start, bool only_strings, size_t n) {
  Buffer in(object);
  if (start > in.size() || n > in.size()) throw nb::value_error("more strings than bytes");
  int64_t *starts, *sizes;
  nb::object starts_array = new_array(NPY_INT64, n, starts);
  nb::object sizes_array = new_array(NPY_INT64, n, sizes);
  const Outcome o = unlocked(in.size(), [&] {
    return find_string_vals(in.data(), in.size(), start, only_strings, n, starts, sizes);
  });
  return nb::make_tuple(o.status, o.offset, o.count, starts_array, sizes_array);
}

// -> (status, offset, offsets): where the strings' bytes begin in `object`, and their offsets.
nb::tuple parse_string_lengths(nb::handle object, size_t n) {
  Buffer in(object);
  if (n > in.size()) throw nb::value_error("more strings than bytes");
  int64_t* offsets;
  nb::object array = new_array(NPY_INT64, n + 1, offsets);
  const Outcome o =
      unlocked(in.size(), [&] { return read_string_lengths(in.data(), in.size(), n, offsets); });
  return nb::make_tuple(o.status, o.offset, array);
}

nb::bytes join(nb::sequence chunks) {
  std::vector<Buffer> parts;
  size_t total = 0;
  for (nb::handle chunk : chunks) {
    parts.emplace_back(chunk);
    total += parts.back().size();
  }
  uint8_t* out;
  nb::bytes result = new_bytes(total, out);
  unlocked(total, [&] {
    for (const Buffer& part : parts) {
      if (part.size()) std::memcpy(out, part.data(), part.size());
      out += part.size();
    }
    return 0;
  });
  return result;
}

uint32_t crc(nb::handle object, uint32_t value) {
  Buffer in(object);
  return unlocked(in.size(), [&] { return crc32c(value, in.data(), in.size()); });
}

uint32_t crc_software(nb::handle object, uint32_t value) {
  Buffer in(object);
  return unlocked(in.size(), [&] { return crc32c_software(value, in.data(), in.size()); });
}

void* load_numpy() {
  import_array();
  return nullptr;
}

}  // namespace

NB_MODULE(_native, m) {
  load_numpy();
  if (PyErr_Occurred()) throw nb::python_error();
  m.def("register_dtype", &register_dtype);
  m.def("encode_dense", &encode_dense, nb::arg("array").none());
  m.def("decode_dense", &decode_dense);
  m.def("encode_named", &encode_named, nb::arg("value").none());
  m.def("decode_named", &decode_named);
  m.def("named_header", &named_header);
  m.def("read_named", &read_named);
  m.def("dense_header", &dense_header);
  m.def("tensor_scan", &tensor_scan);
  m.def("typed_vals", &typed_vals);
  m.def("string_vals", &string_vals);
  m.def("string_lengths", &string_lengths);
  m.def("parse_string_vals", &parse_string_vals);
  m.def("find_string_vals", &find_strings);
  m.def("parse_string_lengths", &parse_string_lengths);
  m.def("join", &join);
  m.def("crc32c", &crc, nb::arg("data"), nb::arg("value") = 0);
  m.def("crc32c_software", &crc_software, nb::arg("data"), nb::arg("value") = 0);
  bind_arrow_ipc(m);
  bind_arrow_table(m);
  bind_json(m);
  bind_records(m);
  bind_shuffle(m);
  bind_snappy(m);
  bind_table(m);
}
