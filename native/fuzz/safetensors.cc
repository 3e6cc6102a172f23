// HeaderReader on the text of a safetensors header: every entry lies inside the text and is sound,
// and written again it reads the same.
#include "safetensors.h"

#include <string>
#include <vector>

#include "fuzz.h"

using namespace tensorwire;

namespace {

// All entries of a header; false if it is not in the plain form.
bool read(std::string_view text, std::vector<HeaderEntry>& entries, std::string_view& metadata) {
  HeaderReader reader(text);
  const auto check_inside = [&](std::string_view part) {
    CHECK(part.data() >= text.data() && part.data() + part.size() <= text.data() + text.size());
  };
  for (;;) {
    HeaderEntry e;
    const HeaderReader::Step step = reader.next(e);
    metadata = reader.metadata();
    if (!metadata.empty()) check_inside(metadata);
    CHECK(metadata.empty() || (metadata.front() == '{' && metadata.back() == '}'));
    if (step != HeaderReader::kEntry) return step == HeaderReader::kEnd;
    check_inside(e.name);
    check_inside(e.dtype);
    CHECK(is_plain_name(e.name));
    CHECK(e.rank >= 0 && e.rank <= kHeaderRank && e.start <= INT64_MAX && e.stop <= INT64_MAX);
    uint64_t bound = 1;  // the bindings multiply the dims without looking
    for (int i = 0; i < e.rank; i++) {
      CHECK(e.dims[i] >= 0);
      if (e.dims[i])
        CHECK(!__builtin_mul_overflow(bound, static_cast<uint64_t>(e.dims[i]), &bound));
    }
    CHECK(bound == e.bound && bound <= INT64_MAX);
    entries.push_back(e);
    CHECK(entries.size() <= text.size());  // it moves on
  }
}

bool same(const HeaderEntry& a, const HeaderEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.rank == b.rank &&
         std::memcmp(a.dims, b.dims, static_cast<size_t>(a.rank) * sizeof *a.dims) == 0 &&
         a.start == b.start && a.stop == b.stop;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<HeaderEntry> entries, again;
  std::string_view metadata, metadata_again;
  if (!read({reinterpret_cast<const char*>(data), size}, entries, metadata)) return 0;

  std::string text = "{";
  if (!metadata.empty()) text.append("\"__metadata__\":").append(metadata);
  for (const HeaderEntry& e : entries) {
    if (text.size() > 1) text.push_back(',');
    append_entry(text, e.name, e.dtype, e.dims, e.rank, e.start, e.stop);
  }
  text.push_back('}');
  CHECK(text.size() <= size);  // ours has no spaces
  const fuzz::Exact<char> exact(text.data(), text.size());
  CHECK(read({exact.data(), exact.size()}, again, metadata_again) && metadata == metadata_again &&
        entries.size() == again.size());
  for (size_t i = 0; i < entries.size(); i++) CHECK(same(entries[i], again[i]));
  return 0;
}
