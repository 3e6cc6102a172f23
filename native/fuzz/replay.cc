// Runs a corpus through a fuzz target without libFuzzer, so that any compiler can check it in every
// test run:
//     TARGET [--mutate N SEED] FILE|DIRECTORY...
// With --mutate it goes on with N mutations of those inputs. The same seed gives the same inputs on
// every machine. What fails is left in TARGET.crash and printed as hex.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz.h"

// A failed CHECK, and what UBSan finds, end in abort(), which ASan turns into a stack and a call of
// keep_input.
extern "C" const char* __asan_default_options() { return "handle_abort=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxSize = 4096;
constexpr unsigned kMaxSeconds = 2;  // what we promise of any file, and these are small ones

std::string crash_path;
const uint8_t* current = nullptr;
size_t current_size = 0;

void keep_input() {
  std::ofstream(crash_path, std::ios::binary)
      .write(reinterpret_cast<const char*>(current), static_cast<std::streamsize>(current_size));
  std::fprintf(stderr, "\ninput of %zu bytes, kept in %s: ", current_size, crash_path.c_str());
  for (size_t i = 0; i < current_size && i < 512; i++) std::fprintf(stderr, "%02x", current[i]);
  std::fprintf(stderr, "\n");
}

// Where there is no sanitizer (an emulated machine), a failed CHECK ends here.
[[maybe_unused]] void aborted(int) {
  keep_input();
  _exit(1);
}

void too_slow(int) {
  std::fprintf(stderr, "an input took more than %u s\n", kMaxSeconds);
  keep_input();
  _exit(1);
}

void run(const Bytes& input) {
  const fuzz::Exact<uint8_t> exact(input.data(), input.size());
  current = exact.data();
  current_size = exact.size();
  alarm(kMaxSeconds);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  alarm(0);
}

struct Random {  // xorshift64*
  uint64_t state;
  uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
  }
  size_t below(size_t n) { return n ? (next() >> 16) % n : 0; }
};

// Numbers at the edges of what lengths, dims, tags and offsets can be.
constexpr uint64_t kEdges[] = {
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    253,
    254,
    255,
    256,
    4095,
    16383,
    16384,
    65535,
    65536,
    0x7fffffff,
    0x80000000,
    0xffffffff,
    0x100000000,
    0x3fffffffffffffff,
    0x7fffffffffffffff,
    0x8000000000000000,
    0xfffffffffffffff8,
    0xffffffffffffffff,
};

void insert_edge(Bytes& b, Random& random) {
  const uint64_t value = kEdges[random.below(std::size(kEdges))];
  uint8_t raw[10];
  size_t n;
  if (random.below(2)) {  // as a varint, else little-endian in 1, 2, 4 or 8 bytes
    uint64_t rest = value;
    for (n = 0; rest >= 0x80; rest >>= 7) raw[n++] = static_cast<uint8_t>(rest | 0x80);
    raw[n++] = static_cast<uint8_t>(rest);
  } else {
    n = size_t{1} << random.below(4);
    std::memcpy(raw, &value, n);
  }
  const size_t at = random.below(b.size() + 1),
               over = random.below(2) ? std::min(n, b.size() - at) : 0;  // overwrite or push aside
  b.erase(b.begin() + static_cast<long>(at), b.begin() + static_cast<long>(at + over));
  b.insert(b.begin() + static_cast<long>(at), raw, raw + n);
}

void mutate(Bytes& b, const std::vector<Bytes>& corpus, Random& random) {
  const auto span = [&](const Bytes& of, size_t& from, size_t& to) {
    from = random.below(of.size() + 1);
    to = from + random.below(std::min<size_t>(of.size() - from, 64) + 1);
  };
  size_t from, to;
  switch (random.below(6)) {
    case 0:
      if (!b.empty()) b[random.below(b.size())] ^= static_cast<uint8_t>(1u << random.below(8));
      break;
    case 1:
      if (!b.empty()) b[random.below(b.size())] = static_cast<uint8_t>(random.next() >> 56);
      break;
    case 2:  // cut the end off
      b.resize(random.below(b.size() + 1));
      break;
    case 3:  // cut a piece out
      span(b, from, to);
      b.erase(b.begin() + static_cast<long>(from), b.begin() + static_cast<long>(to));
      break;
    case 4: {  // a piece of another input
      const Bytes& other = corpus[random.below(corpus.size())];
      span(other, from, to);
      const Bytes piece(other.begin() + static_cast<long>(from),
                        other.begin() + static_cast<long>(to));
      b.insert(b.begin() + static_cast<long>(random.below(b.size() + 1)), piece.begin(),
               piece.end());
      break;
    }
    default:
      insert_edge(b, random);
  }
  if (b.size() > kMaxSize) b.resize(kMaxSize);
}

Bytes read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

int main(int argc, char** argv) {
  size_t mutations = 0;
  Random random{1};
  std::vector<fs::path> files;
  for (int i = 1; i < argc; i++) {
    if (std::string(argv[i]) == "--mutate" && i + 2 < argc) {
      mutations = std::strtoull(argv[++i], nullptr, 10);
      random.state =
          std::max<uint64_t>(std::strtoull(argv[++i], nullptr, 10), 1);  // xorshift never leaves 0
    } else if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::recursive_directory_iterator(argv[i]))
        if (entry.is_regular_file()) files.push_back(entry.path());
    } else {
      files.emplace_back(argv[i]);
    }
  }
  if (files.empty()) {  // a missing corpus must not pass for a clean one
    std::fprintf(stderr, "usage: %s [--mutate N SEED] FILE|DIRECTORY...\n", argv[0]);
    return 2;
  }
  std::sort(files.begin(),
            files.end());  // directories are listed in any order, and mutations depend on it
  crash_path = std::string(argv[0]) + ".crash";
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(keep_input);
#else
  signal(SIGABRT, aborted);
#endif
  signal(SIGALRM, too_slow);

  std::vector<Bytes> corpus;
  for (const fs::path& file : files) corpus.push_back(read_file(file));
  run({});
  for (const Bytes& input : corpus) run(input);
  for (size_t i = 0; i < mutations; i++) {
    Bytes input = corpus[random.below(corpus.size())];
    for (size_t n = 1 + random.below(4); n; n--) mutate(input, corpus, random);
    run(input);
  }
  std::printf("%-16s %zu inputs, %zu mutations\n", fs::path(argv[0]).filename().c_str(),
              corpus.size(), mutations);
  return 0;
}
