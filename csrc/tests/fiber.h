// Stacks that take turns on one thread. On x86-64 a switch saves the registers that a call must preserve and nothing
// else (a few nanoseconds); elsewhere ucontext does it, with two system calls each time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#if defined(__x86_64__) && !defined(CALIRARE_UCONTEXT)
#define CALIRARE_OWN_SWITCH
#else
#include <ucontext.h>
#endif
#if defined(CALIRARE_EMULATOR_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(CALIRARE_OWN_SWITCH)
asm(R"(
.text
.type calirare_switch_stack, @function
calirare_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size calirare_switch_stack, . - calirare_switch_stack
)");
extern "C" void calirare_switch_stack(void** from, void* to);
#endif

namespace calirare::emulator {

// A stack and where its work stopped. One without memory of its own stands for the thread's own stack.
class Stack {
 public:
  static constexpr size_t kBytes = 96 * 1024;

  // The next switch to this stack calls `work`, which must not return.
  void prepare(void (*work)()) {
    if (!memory_) memory_.reset(new char[kBytes]);
    fake_ = nullptr;  // of work that was given up
#if defined(CALIRARE_OWN_SWITCH)
    // What calirare_switch_stack will pop: six registers, then where to go. A function starts 8 bytes off 16.
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory_.get()) + kBytes) & ~uintptr_t(15);
    uint64_t* top = reinterpret_cast<uint64_t*>(end) - 8;
    for (int i = 0; i < 8; ++i) top[i] = 0;
    top[6] = reinterpret_cast<uint64_t>(work);
    place_ = top;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = memory_.get();
    context_.uc_stack.ss_size = kBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, work, 0);
#endif
  }

  // Stops here and goes on in `other`; returns when somebody switches back. `leaves` says nobody will.
  void switch_to(Stack& other, [[maybe_unused]] bool leaves = false) {
#if defined(CALIRARE_EMULATOR_ASAN)
    const char* bottom = other.memory_ ? other.memory_.get() : static_cast<const char*>(other.bottom_);
    __sanitizer_start_switch_fiber(leaves ? nullptr : &fake_, bottom, other.memory_ ? kBytes : other.bytes_);
#endif
#if defined(CALIRARE_OWN_SWITCH)
    calirare_switch_stack(&place_, other.place_);
#else
    swapcontext(&context_, &other.context_);
#endif
    arrive(other);
  }

  // The first thing `work` does: `from` is the stack that switched here.
  void arrive([[maybe_unused]] Stack& from) {
#if defined(CALIRARE_EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(fake_, &from.bottom_, &from.bytes_);
    fake_ = nullptr;
#endif
  }

 private:
  std::unique_ptr<char[]> memory_;
#if defined(CALIRARE_OWN_SWITCH)
  void* place_ = nullptr;
#else
  ucontext_t context_;
#endif
  void* fake_ = nullptr;          // the sanitizer's shadow of this stack
  const void* bottom_ = nullptr;  // of the thread's own stack, as the sanitizer tells it
  size_t bytes_ = 0;
};

}  // namespace calirare::emulator
