// Record files: TFRecord frames, and Examples as columns.
#include "python.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "example_decode.h"
#include "example_encode.h"
#include "example_survey.h"
#include "example_walk.h"
#include "tfrecord.h"

namespace tensorwire {
namespace {

nb::object int64_array(const std::vector<int64_t>& values) {
  int64_t* data;
  nb::object array = new_array(NPY_INT64, values.size(), data);
  if (!values.empty()) std::memcpy(data, values.data(), 8 * values.size());
  return array;
}

// A vector of one type, borrowed; empty and null for None.
template <class T>
struct Vector {
  T* data = nullptr;
  size_t size = 0;

  Vector() = default;
  Vector(nb::handle object, int type, const char* what, bool writable = false) {
    if (object.is_none()) return;
    auto* array = as_array(object, type, what);
    if (writable && !PyArray_ISWRITEABLE(array))
      throw nb::value_error("an output must be writable");
    data = static_cast<T*>(PyArray_DATA(array));
    size = static_cast<size_t>(PyArray_DIM(array, 0));
  }
};

// Values of a column: places are int64 too.
int type_of_kind(int kind) {
  return kind == kBytesList ? NPY_UINT8 : kind == kFloatList ? NPY_FLOAT32 : NPY_INT64;
}

// Where messages lie in a buffer.
struct Places {
  Buffer data;
  Vector<int64_t> starts, sizes;

  Places(nb::handle data_, nb::handle starts_, nb::handle sizes_)
      : data(data_),
        starts(starts_, NPY_INT64, "starts must be a contiguous int64 vector"),
        sizes(sizes_, NPY_INT64, "sizes must be a contiguous int64 vector") {
    if (!starts.data || !sizes.data || starts.size != sizes.size)
      throw nb::value_error("as many starts as sizes");
  }
};

nb::tuple frame_scan(nb::handle object, size_t start, bool check, uint64_t longest, size_t most) {
  Buffer in(object);
  std::vector<int64_t> starts, sizes;
  if (start > in.size()) throw nb::value_error("start is past the end");
  const FrameScan scan = unlocked(in.size() - start, [&] {
    return scan_frames(in.data(), in.size(), start, check, longest, most, starts, sizes);
  });
  return nb::make_tuple(scan.status, scan.offset, int64_array(starts), int64_array(sizes));
}

size_t frame_find(nb::handle object, size_t start, uint64_t longest) {
  Buffer in(object);
  return unlocked(in.size(), [&] { return find_frame(in.data(), in.size(), start, longest); });
}

nb::tuple frame_chain(nb::handle object, size_t start, uint64_t stop, uint64_t longest,
                      uint64_t total, uint64_t near, uint64_t checks, uint64_t guess) {
  Buffer in(object);
  if (total < in.size()) throw nb::value_error("a file is not smaller than a part of it");
  ChainSearch search{longest, stop, total, near, checks, guess};
  const size_t found =
      unlocked(in.size(), [&] { return find_chain(in.data(), in.size(), start, search); });
  return nb::make_tuple(found, search.checks);
}

nb::list frame_list(nb::handle object, nb::handle starts, nb::handle sizes) {
  const Places in(object, starts, sizes);
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(in.starts.size)));
  if (!list.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < in.starts.size; i++) {
    const auto start = static_cast<uint64_t>(in.starts.data[i]),
               size = static_cast<uint64_t>(in.sizes.data[i]);
    if (start > in.data.size() || size > in.data.size() - start)
      throw nb::value_error("a record lies outside the buffer");
    PyObject* record = PyBytes_FromStringAndSize(
        reinterpret_cast<const char*>(in.data.data() + start), static_cast<Py_ssize_t>(size));
    if (!record) throw nb::python_error();
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), record);
  }
  return nb::borrow<nb::list>(list);
}

nb::bytes frame(nb::handle object) {
  Buffer in(object);
  uint8_t* out;
  nb::bytes result = new_bytes(kFrameHeader + in.size() + kFrameFooter, out);
  unlocked(in.size(), [&] { return write_frame(out, in.data(), in.size()); });
  return result;
}

nb::bytes frames(nb::handle data, nb::handle offsets_) {
  Buffer in(data);
  const Vector<int64_t> offsets(offsets_, NPY_INT64, "offsets must be a contiguous int64 vector");
  if (!offsets.size) throw nb::value_error("offsets must hold at least one number");
  const size_t n = offsets.size - 1,
               total = static_cast<size_t>(offsets.data[n]) - static_cast<size_t>(offsets.data[0]);
  if (total > in.size()) throw nb::value_error("offsets must not decrease");
  const size_t room = total + n * (kFrameHeader + kFrameFooter);
  uint8_t* out;
  nb::bytes result = new_bytes(room, out);
  const bool ok = unlocked(room, [&] {
    uint8_t *at = out, *end = out + room;
    for (size_t i = 0; i < n; i++) {
      const auto from = static_cast<uint64_t>(offsets.data[i]),
                 to = static_cast<uint64_t>(offsets.data[i + 1]);
      if (from > to || to > in.size() ||
          static_cast<size_t>(end - at) < kFrameHeader + (to - from) + kFrameFooter)
        return false;
      at = write_frame(at, in.data() + from, to - from);
    }
    return at == end;
  });
  if (!ok) throw nb::value_error("offsets must not decrease");
  return result;
}

ExampleDecoder* new_decoder(nb::list names, nb::list kinds, nb::list lengths, nb::list lists,
                            bool sequence, int compat) {
  std::vector<Column> columns;
  if (compat < kProtobuf || compat > kUnsetCounts) throw nb::value_error("compat is 0, 1 or 2");
  if (kinds.size() != names.size() || lengths.size() != names.size() ||
      lists.size() != names.size())
    throw nb::value_error("as many kinds, lengths and lists as names");
  for (size_t i = 0; i < names.size(); i++) {
    const Buffer name(names[i]);
    columns.push_back({std::string(reinterpret_cast<const char*>(name.data()), name.size()),
                       nb::cast<int>(kinds[i]), nb::cast<int64_t>(lengths[i]),
                       nb::cast<bool>(lists[i])});
    Column& column = columns.back();
    if (column.kind < kBytesList || column.kind > kPlaces)
      throw nb::value_error("a kind is 1, 2, 3 or 4");
    if (column.kind == kPlaces) {
      if (column.list || column.length < 0 || compat != kProtobuf)
        throw nb::value_error("places are for features of a fixed length");
      column.kind = kBytesList;
      column.places = true;
    }
    if (column.length < -1 || column.length > INT32_MAX)
      throw nb::value_error("a length is -1 to 2^31 - 1");
    if (column.list && !sequence) throw nb::value_error("only a SequenceExample has feature lists");
  }
  std::set<std::pair<bool, std::string_view>> seen;
  for (const Column& column : columns)
    if (!seen.emplace(column.list, column.name).second)
      throw nb::value_error("two columns of one name");
  return new ExampleDecoder(std::move(columns), sequence, static_cast<Compat>(compat));
}

// The outputs of one call, and what must hold of them before a kernel may trust them.
std::vector<Output> outputs_of(const ExampleDecoder& decoder, nb::list tuples, size_t row,
                               size_t& rows, std::vector<nb::tuple>& kept) {
  const auto& columns = decoder.columns();
  if (tuples.size() != columns.size()) throw nb::value_error("as many outputs as columns");
  std::vector<Output> outputs(columns.size());
  rows = SIZE_MAX;
  for (size_t i = 0; i < columns.size(); i++) {
    const Column& column = columns[i];
    auto parts = nb::cast<nb::tuple>(tuples[i]);
    if (parts.size() != 5)
      throw nb::value_error("an output is (values, offsets, splits, steps, present)");
    const int kind = column.places ? kPlaces : column.kind;
    const Vector<uint8_t> values(parts[0], type_of_kind(kind),
                                 "values have the type of their column", true);
    const Vector<int64_t> offsets(parts[1], NPY_INT64, "offsets are int64", true),
        splits(parts[2], NPY_INT64, "splits are int64", true),
        steps(parts[3], NPY_INT64, "steps are int64", true);
    const Vector<uint8_t> present(parts[4], NPY_BOOL, "present is bool", true);
    if ((kind == kBytesList) != (offsets.data != nullptr) ||
        (column.length < 0) != (splits.data != nullptr) || column.list != (steps.data != nullptr) ||
        !values.data || !present.data)
      throw nb::value_error("an output has the parts that its column needs");
    rows = std::min(rows, present.size);
    const size_t by_row = column.list ? steps.size : column.length < 0 ? splits.size : SIZE_MAX;
    if (by_row < present.size + 1)
      throw nb::value_error("splits and steps have one more number than there are rows");
    if (row > present.size) throw nb::value_error("row is past the end");
    // Where the rows so far end; from there on only the kernel writes.
    const size_t instance = column.list ? static_cast<size_t>(steps.data[row]) : row;
    if (splits.data && instance >= splits.size)
      throw nb::value_error("steps point outside the splits");
    const size_t value = splits.data ? static_cast<size_t>(splits.data[instance])
                                     : instance * static_cast<size_t>(column.length);
    if (offsets.data ? (value<offsets.size&& static_cast<size_t>(offsets.data[value])> values.size)
                     : (splits.data && value > values.size))
      throw nb::value_error("splits or offsets point outside the values");
    outputs[i] = {values.data, values.size, offsets.data, offsets.size, splits.data,
                  splits.size, steps.data,  steps.size,   present.data};
    kept.push_back(std::move(parts));
  }
  return outputs;
}

nb::tuple decode(const ExampleDecoder& decoder, nb::handle data, nb::handle starts,
                 nb::handle sizes, size_t first, size_t row, nb::list outputs_, bool checked) {
  const Places in(data, starts, sizes);
  size_t rows;
  std::vector<nb::tuple> kept;  // the list may change while we work without the GIL
  const std::vector<Output> outputs = outputs_of(decoder, outputs_, row, rows, kept);
  if (first > in.starts.size) throw nb::value_error("first is past the end");
  if (outputs.empty()) row = 0, rows = in.starts.size;  // no columns: the messages are only checked
  const Decoded d = unlocked(in.data.size(), [&] {
    return decoder.decode(in.data.data(), in.data.size(), in.starts.data + first,
                          in.sizes.data + first, in.starts.size - first, row, rows, outputs.data(),
                          checked);
  });
  return nb::make_tuple(d.status, static_cast<int64_t>(d.offset), d.done, d.column, d.found,
                        d.strange);
}

nb::tuple example_encode(nb::list tuples, bool sequence, size_t first, size_t step, size_t count,
                         bool framed, nb::handle out_, nb::handle ends_) {
  std::vector<Input> columns;
  std::vector<nb::tuple> kept;  // the list may change while we work without the GIL
  for (nb::handle item : tuples) {
    auto parts = nb::cast<nb::tuple>(item);
    if (parts.size() != 9)
      throw nb::value_error(
          "a column is (name, kind, list, length, values, offsets, splits, steps, present)");
    const Buffer name(parts[0]);
    Input in{};
    in.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    in.kind = nb::cast<int>(parts[1]);
    in.list = nb::cast<bool>(parts[2]);
    in.length = nb::cast<int64_t>(parts[3]);
    if (in.kind < kBytesList || in.kind > kInt64List || in.length < -1 || (in.list && !sequence))
      throw nb::value_error("a kind, length or list that no column has");
    const Vector<uint8_t> values(parts[4], type_of_kind(in.kind),
                                 "values have the type of their column"),
        present(parts[8], NPY_BOOL, "present is bool");
    const Vector<int64_t> offsets(parts[5], NPY_INT64, "offsets are int64"),
        splits(parts[6], NPY_INT64, "splits are int64"),
        steps(parts[7], NPY_INT64, "steps are int64");
    if ((in.kind == kBytesList) != (offsets.data != nullptr) ||
        (in.length < 0) != (splits.data != nullptr) || in.list != (steps.data != nullptr) ||
        !values.data)
      throw nb::value_error("a column has the parts that it needs");
    if (offsets.data && !offsets.size)
      throw nb::value_error("offsets must hold at least one number");
    in.values = values.data, in.values_size = values.size;
    in.offsets = offsets.data, in.offsets_size = offsets.size;
    in.splits = splits.data, in.splits_size = splits.size;
    in.steps = steps.data, in.steps_size = steps.size;
    in.present = present.data, in.present_size = present.size;
    columns.push_back(std::move(in));
    kept.push_back(std::move(parts));
  }
  const Vector<uint8_t> out(out_, NPY_UINT8, "out must be a contiguous uint8 vector", true);
  const Vector<int64_t> ends(ends_, NPY_INT64, "ends are int64", true);
  if (ends.data && ends.size < count)
    throw nb::value_error("ends must have room for every message");
  const Encoded e = unlocked(out.size, [&] {
    return encode_examples(columns, sequence, first, step, count, framed, out.data, out.size,
                           ends.data);
  });
  return nb::make_tuple(e.status, e.done, e.used, e.wanted);
}

nb::tuple survey_add(ExampleSurvey& survey, nb::handle data, nb::handle starts, nb::handle sizes,
                     bool checked) {
  const Places in(data, starts, sizes);
  const Surveyed s = unlocked(in.data.size(), [&] {
    return survey.add(in.data.data(), in.data.size(), in.starts.data, in.sizes.data, in.starts.size,
                      checked);
  });
  return nb::make_tuple(s.status, static_cast<int64_t>(s.offset), s.done);
}

nb::tuple survey_result(const ExampleSurvey& survey) {
  nb::list features;
  const auto [records, with_lists, found] = survey.result();
  for (const auto& [key, feature] : found) {
    const FeatureStats& f = feature.all;
    const auto bound = [](uint64_t value) { return value == UINT64_MAX ? uint64_t{0} : value; };
    features.append(nb::make_tuple(
        nb::bytes(key.second.data(), key.second.size()), key.first, f.records,
        nb::make_tuple(f.kinds[0], f.kinds[1], f.kinds[2], f.kinds[3]), bound(f.shortest),
        f.longest, f.values, nb::make_tuple(f.least, f.most), nb::make_tuple(f.low, f.high), f.nans,
        nb::make_tuple(bound(f.small), f.large), nb::make_tuple(bound(f.fewest), f.most_steps)));
  }
  return nb::make_tuple(records, with_lists, features);
}

}  // namespace

void bind_records(nb::module_& m) {
  m.def("frame_scan", &frame_scan);
  m.def("frame_find", &frame_find);
  m.def("frame_chain", &frame_chain);
  m.def("frame_list", &frame_list);
  m.def("frame", &frame);
  m.def("frames", &frames);
  nb::class_<ExampleDecoder>(m, "ExampleDecoder")
      .def(nb::new_(&new_decoder), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg("compat") = 0)
      .def("decode", &decode);
  m.def("example_encode", &example_encode, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg(), nb::arg().none());
  nb::class_<ExampleSurvey>(m, "ExampleSurvey")
      .def(nb::init<size_t>())
      .def("add", &survey_add)
      .def("result", &survey_result)
      .def_prop_ro("others", &ExampleSurvey::others);
}

}  // namespace tensorwire
