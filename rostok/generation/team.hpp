// Threads that wait for work of a few hundred microseconds: together(threads, work) calls work(0) .. work(threads - 1).
//
// A thread that waits spins for about ten microseconds, then offers its core to others with each look, and sleeps when
// nothing has come for a while. Pure spinning would be as fast on a machine at rest, and ten times as slow on a busy one.

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>

static void relax(int64_t tries) {  // a thread that waits gives its core away soon: others may need it
    if (tries > 300) return std::this_thread::yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Threads that wait for work. run(count, work) calls work(0) .. work(count - 1), work(0) on the caller's thread.
struct Team {
    typedef void (*Work)(void*, int);
    std::atomic<uint32_t> call{0};  // number of the call * 256 + threads that it wants
    std::atomic<int> waiting{0}, round{0};
    int members = 1, count = 1;
    Work work = nullptr;
    void* with = nullptr;

    void wait() {  // until all `count` threads are here
        const int now = round.load(std::memory_order_acquire);
        if (waiting.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
            waiting.store(0, std::memory_order_relaxed);
            round.store(now + 1, std::memory_order_release);
        } else {
            for (int64_t tries = 0; round.load(std::memory_order_acquire) == now; tries++) relax(tries);
        }
    }

    void member(int me, uint32_t seen) {
        for (;; ) {
            for (int64_t tries = 0; tries < 600 && call.load(std::memory_order_acquire) == seen; tries++) relax(tries);
            call.wait(seen, std::memory_order_acquire);  // asleep, where nothing came
            seen = call.load(std::memory_order_acquire);
            if (me < (int)(seen & 255)) work(with, me), wait();
        }
    }

    void run(int threads, Work what, void* data) {
        count = std::max(1, std::min(threads, 255)), work = what, with = data;
        const uint32_t before = call.load();
        for (; members < count; members++) std::thread(&Team::member, this, members, before).detach();
        if (count > 1) call.store(((before >> 8) + 1) << 8 | (uint32_t)count, std::memory_order_release), call.notify_all();
        work(with, 0);
        if (count > 1) wait();
    }
};
static Team* team = nullptr;  // never deleted: its threads live as long as the process
static std::mutex one_at_a_time;

static void start_again() { team = nullptr, new (&one_at_a_time) std::mutex; }  // a forked process has no threads

// All threads on one task, `work(me)`; a library has one team.
template <class F>
static void together(int threads, F work) {
    static const int once = pthread_atfork(nullptr, nullptr, start_again);
    (void)once;
    std::lock_guard<std::mutex> lock(one_at_a_time);
    if (!team) team = new Team;
    team->run(threads, [](void* work, int me) { (*(F*)work)(me); }, &work);
}
