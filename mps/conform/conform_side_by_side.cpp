#include "mps/conform/conform_side_by_side.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

namespace mps::detail {

std::vector<ConformRow> conformSideBySide(const ConformOptions& options, std::int64_t jobs,
                                          const std::function<void(Conform&)>& families) {
  ConformOptions shared = options;
  shared.nextRow = std::make_shared<std::atomic<std::int64_t>>(0);
  std::mutex finishing;
  if (options.rowFinished)
    shared.rowFinished = [&](const ConformRow& row) {
      const std::lock_guard lock(finishing);
      options.rowFinished(row);
    };
  std::vector<Conform> parts;
  for (std::int64_t job = 0; job < jobs; ++job) parts.emplace_back(shared);
  std::vector<std::exception_ptr> failures(parts.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < parts.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          families(parts[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);

  std::vector<ConformRow> rows;
  for (const Conform& part : parts) rows.insert(rows.end(), part.rows().begin(), part.rows().end());
  std::ranges::sort(rows, {}, &ConformRow::place);
  return rows;
}

}  // namespace mps::detail
