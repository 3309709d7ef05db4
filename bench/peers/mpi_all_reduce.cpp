// MPI's in-place float32 all-reduce as a peer (bench/peer.h has the protocol). A request is `[sequence] BYTES`: each
// all-reduce is timed for itself, or a sequence of them as one. Between rounds every rank sleeps: a rank that waits
// inside MPI would keep a core busy while others are measured.
#include <linux/futex.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

namespace {

double now() {  // the same clock in every process of the machine
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What rank 0 has read, in memory that all ranks of the machine share.
struct Request {
  std::atomic<std::uint32_t> number{0};
  std::uint64_t bytes = 0;
  int repeats = 0;  // 0 ends
  bool sequence = false;
};

// Whether there was one more on standard input.
bool read_request(std::uint64_t& bytes, int& repeats, bool& sequence) {
  std::array<char, 64> line{};
  if (std::fgets(line.data(), line.size(), stdin) == nullptr) return false;
  const std::string prefix = "sequence ";
  sequence = std::string(line.data()).starts_with(prefix);
  unsigned long long count = 0;
  if (std::sscanf(line.data() + (sequence ? prefix.size() : 0), "%llu %d", &count, &repeats) != 2) return false;
  bytes = count;
  return true;
}

class Requests {
 public:
  explicit Requests(int rank) {
    const MPI_Aint bytes = rank == 0 ? sizeof(Request) : 0;
    void* base = nullptr;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window_);
    if (rank == 0) new (base) Request;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Aint size = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &size, &unit, &base);
    request_ = static_cast<Request*>(base);
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() { MPI_Win_free(&window_); }

  // Reads the next one on rank 0, for all.
  void publish() {
    if (!read_request(request_->bytes, request_->repeats, request_->sequence)) request_->repeats = 0;
    request_->number.fetch_add(1);
    syscall(SYS_futex, &request_->number, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  const Request& next() {
    while (request_->number.load() == seen_)
      syscall(SYS_futex, &request_->number, FUTEX_WAIT, seen_, nullptr, nullptr, 0);
    ++seen_;
    return *request_;
  }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  Request* request_ = nullptr;
  std::uint32_t seen_ = 0;
};

void all_reduce(std::vector<float>& values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// Elements of all ranks that come out wrong.
long wrong_elements(std::vector<float>& values, int rank, int ranks) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 7 + 1));
  all_reduce(values);
  long wrong = 0;
  const int sum = ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < values.size(); ++i)
    wrong += values[i] != static_cast<float>(sum * static_cast<int>(i % 7 + 1));
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return wrong;
}

// On every rank: seconds of all repeats, each run (of one all-reduce, or of the whole sequence) from the first rank's
// start to the last rank's end.
double time_round(std::vector<float>& values, int rank, int repeats, bool sequence) {
  const int runs = sequence ? 1 : repeats;
  // A backward pass rewrites gradients; in a sequence nothing does, and sums of zeros stay what they are.
  const float value = sequence ? 0.0F : static_cast<float>(rank + 1);
  std::vector<double> starts(static_cast<std::size_t>(runs));
  std::vector<double> ends(starts.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    std::fill(values.begin(), values.end(), value);
    MPI_Barrier(MPI_COMM_WORLD);
    starts[i] = now();
    for (int done = 0; done < repeats / runs; ++done) all_reduce(values);
    ends[i] = now();
  }
  MPI_Allreduce(MPI_IN_PLACE, starts.data(), runs, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, ends.data(), runs, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  double seconds = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) seconds += ends[i] - starts[i];
  return seconds;
}

void serve(int rank, int ranks) {
  Requests requests(rank);
  std::vector<float> values;
  if (rank == 0) std::puts("ready"), std::fflush(stdout);
  while (true) {
    if (rank == 0) requests.publish();
    const Request& request = requests.next();
    const int repeats = request.repeats;
    const std::size_t count = request.bytes / sizeof(float);
    if (repeats <= 0) return;

    long wrong = 0;
    if (values.size() != count) {
      values = std::vector<float>(count);
      wrong = wrong_elements(values, rank, ranks);
    }
    const double seconds = time_round(values, rank, repeats, request.sequence);
    if (rank != 0) continue;
    if (wrong != 0) {
      std::printf("error %ld elements of the sum are wrong\n", wrong);
    } else {
      std::printf("%.9f\n", seconds);
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  serve(rank, ranks);
  MPI_Finalize();
}
