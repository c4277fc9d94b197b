// Runs a function on several threads at once.
#pragma once

#include <thread>
#include <vector>

namespace multiverso::testing {

// Runs body(0) to body(count - 1), each on its own thread, and waits until all have returned.
template <class Body>
void OnThreads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace multiverso::testing
