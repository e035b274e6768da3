// The scheduler of the thread-block emulator. Compiled without sanitizers, for speed; CALIRARE_EMULATOR_ASAN says that
// the kernels it runs are compiled with the address sanitizer, which has to hear of every change of stack.
#include "emulator.h"

#include <array>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "fiber.h"

namespace calirare::emulator {
namespace {

enum class Wait : uint8_t { kNone, kBlock, kWarp, kExited };

constexpr unsigned kLanes = 32;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Fiber {
  dim3 thread;
  unsigned number = 0;  // within the block
  Wait wait = Wait::kNone;
  Op op = Op::kSync;
  uint32_t mask = 0;
  uint64_t sent = 0;
  std::vector<Copy> copies;  // on their way

  unsigned lane() const { return number % kLanes; }
  unsigned warp() const { return number / kLanes; }
};

// xorshift64*: a fast source for the schedules.
class Random {
 public:
  explicit Random(unsigned seed) : state_(0x9e3779b97f4a7c15u ^ (uint64_t(seed) + 1) * 0xbf58476d1ce4e5b9u) {}
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }
  size_t below(size_t limit) {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return (state_ * 0x2545f4914f6cdd1du >> 16) % limit;
  }

 private:
  uint64_t state_;
};

Stack& stack_of(unsigned thread) {
  static std::vector<std::unique_ptr<Stack>> stacks;  // kept: large blocks are slow to come by under the sanitizer
  while (stacks.size() <= thread) stacks.push_back(std::make_unique<Stack>());
  return *stacks[thread];
}

// One block of a grid at a time.
class Grid {
 public:
  Grid(dim3 grid, dim3 block, const std::function<void()>& body)
      : body_(body),
        random_(schedule_seed),
        fibers_(size_t(block.x) * block.y * block.z),
        received_((fibers_.size() + kLanes - 1) / kLanes),
        ready_(received_.size()) {
    here_.grid_size = grid;
    here_.block_size = block;
  }

  void run();
  void wait(Wait what, Op op, uint32_t mask, uint64_t sent);
  void* shared_array(const void* key, size_t bytes);
  void copy_later(const Copy& copy) { current_->copies.push_back(copy); }
  void copies_arrive();
  const uint64_t* received() const { return received_[current_->warp()].data(); }
  uint64_t votes() const { return votes_; }
  const Coordinates& here() const { return here_; }

 private:
  void run_block(dim3 index);
  void start(unsigned number);
  void resume(Fiber& fiber);
  bool complete(const Fiber& first) const;
  void release_warp(unsigned warp);
  void release_barrier();
  void make_ready(Fiber& fiber);
  size_t choose_warp(size_t last);
  [[noreturn]] void fail(const std::string& what) const;
  static void enter();

  const std::function<void()>& body_;
  Random random_;
  std::vector<Fiber> fibers_;
  std::vector<std::array<uint64_t, kLanes>> received_;
  std::vector<std::vector<unsigned>> ready_;  // of each warp
  std::vector<std::pair<const void*, std::unique_ptr<unsigned char[]>>> shared_;
  Coordinates here_{};
  Stack scheduler_;
  Fiber* current_ = nullptr;
  uint64_t votes_ = 0;
  std::exception_ptr error_;
};

Grid* running = nullptr;

void Grid::fail(const std::string& what) const {
  std::string text = "emulator: " + what + ":";
  for (const Fiber& fiber : fibers_) {
    if (text.size() > 400) break;
    text += " " + std::to_string(fiber.number);
    text += fiber.wait == Wait::kExited ? " exited," : fiber.wait == Wait::kBlock ? " at a barrier," : " in a warp,";
  }
  throw std::runtime_error(text);
}

void* Grid::shared_array(const void* key, size_t bytes) {
  for (auto& entry : shared_) {
    if (entry.first == key) return entry.second.get();
  }
  shared_.emplace_back(key, new unsigned char[bytes]);
  std::memset(shared_.back().second.get(), 0xCD, bytes);
  return shared_.back().second.get();
}

void Grid::copies_arrive() {
  for (const Copy& copy : current_->copies) std::memcpy(copy.to, copy.from, copy.bytes);
  current_->copies.clear();
}

void Grid::enter() {
  stack_of(running->current_->number).arrive(running->scheduler_);
  try {
    running->body_();
    if (!running->current_->copies.empty()) running->fail("a thread ends before its copies have arrived");
  } catch (...) {
    running->error_ = std::current_exception();
  }
  running->current_->wait = Wait::kExited;
  stack_of(running->current_->number).switch_to(running->scheduler_, true);
}

void Grid::resume(Fiber& fiber) {
  current_ = &fiber;
  here_.thread = fiber.thread;
  here_.lane = fiber.lane();
  scheduler_.switch_to(stack_of(fiber.number));
  if (error_) std::rethrow_exception(error_);
}

void Grid::wait(Wait what, Op op, uint32_t mask, uint64_t sent) {
  if (what == Wait::kWarp && (mask >> current_->lane() & 1) == 0) fail("a lane calls a collective it is not part of");
  current_->wait = what;
  current_->op = op;
  current_->mask = mask;
  current_->sent = sent;
  stack_of(current_->number).switch_to(scheduler_);
}

// Have all lanes of the collective that `first` waits in arrived?
bool Grid::complete(const Fiber& first) const {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((first.mask >> lane & 1) == 0) continue;
    const size_t number = size_t(first.warp()) * kLanes + lane;
    if (number >= fibers_.size()) fail("a mask names a lane past the end of the block");
    const Fiber& fiber = fibers_[number];
    if (fiber.wait != Wait::kWarp || fiber.op != first.op || fiber.mask != first.mask) return false;
  }
  return true;
}

// Lets the lanes of the warp's complete collectives go on.
void Grid::release_warp(unsigned warp) {
  for (unsigned number = warp * kLanes; number < fibers_.size() && number < (warp + 1) * kLanes; ++number) {
    const Fiber& first = fibers_[number];
    const bool leads = (first.mask & ((1u << first.lane()) - 1)) == 0;
    if (first.wait != Wait::kWarp || !leads || !complete(first)) continue;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((first.mask >> lane & 1) == 0) continue;
      Fiber& fiber = fibers_[warp * kLanes + lane];
      received_[warp][lane] = fiber.sent;
      make_ready(fiber);
    }
  }
}

void Grid::release_barrier() {
  uint64_t votes = 0;
  for (Fiber& fiber : fibers_) {
    if (fiber.wait != Wait::kBlock || fiber.op != fibers_[0].op) fail("threads wait for each other in vain");
    votes += fiber.sent;
    make_ready(fiber);
  }
  votes_ = votes;
}

void Grid::make_ready(Fiber& fiber) {
  fiber.wait = Wait::kNone;
  ready_[fiber.warp()].push_back(fiber.number);
}

// The warp to run next: mostly the one that ran last, so that warps get far ahead of each other.
size_t Grid::choose_warp(size_t last) {
  if (!ready_[last].empty() && random_.below(4) > 0) return last;
  const size_t first = random_.below(ready_.size());
  for (size_t k = 0; k < ready_.size(); ++k) {
    const size_t warp = (first + k) % ready_.size();
    if (!ready_[warp].empty()) return warp;
  }
  return ready_.size();
}

void Grid::start(unsigned number) {
  const dim3 size = here_.block_size;
  Fiber& fiber = fibers_[number];
  fiber.number = number;
  fiber.thread = dim3(number % size.x, number / size.x % size.y, number / size.x / size.y);
  stack_of(number).prepare(&Grid::enter);
  make_ready(fiber);
}

void Grid::run_block(dim3 index) {
  here_.block = index;
  shared_.clear();
  for (unsigned number = 0; number < fibers_.size(); ++number) start(number);
  size_t exited = 0, warp = 0;
  std::vector<unsigned> lanes;
  while (exited < fibers_.size()) {
    warp = choose_warp(warp);
    if (warp == ready_.size()) {
      release_barrier();
      warp = random_.below(ready_.size());
      continue;
    }
    lanes.clear();
    lanes.swap(ready_[warp]);
    random_.shuffle(lanes);
    for (unsigned number : lanes) {
      resume(fibers_[number]);
      exited += fibers_[number].wait == Wait::kExited;
    }
    release_warp(unsigned(warp));
  }
}

void Grid::run() {
  const dim3 size = here_.grid_size;
  std::vector<uint64_t> order(uint64_t(size.x) * size.y * size.z);
  std::iota(order.begin(), order.end(), uint64_t(0));
  random_.shuffle(order);
  for (uint64_t i : order) {
    run_block(dim3(unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / size.x / size.y)));
  }
}

}  // namespace

const Coordinates& here() { return running->here(); }

void* shared_array(const void* key, size_t bytes) { return running->shared_array(key, bytes); }

void copy_later(void* to, const void* from, size_t bytes) { running->copy_later({to, from, bytes}); }

void copies_arrive() { running->copies_arrive(); }

uint64_t barrier(Op op, bool vote) {
  running->wait(Wait::kBlock, op, 0, vote);
  return running->votes();
}

const uint64_t* collective(Op op, uint32_t mask, uint64_t sent) {
  running->wait(Wait::kWarp, op, mask, sent);
  return running->received();
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& body) {
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  const bool fits = grid.x > 0 && grid.x <= 0x7fffffffu && grid.y > 0 && grid.y <= 0xffffu && grid.z > 0 &&
                    grid.z <= 0xffffu && threads > 0 && threads <= 1024;
  if (!fits) throw std::runtime_error("emulator: a launch with a grid or block no device takes");
  Grid work(grid, block, body);
  struct Restore {
    ~Restore() { running = nullptr; }
  } restore;
  running = &work;
  work.run();
}

}  // namespace calirare::emulator
