#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/graph/compile/graph_program.hpp"
#include "mps/graph/layout/graph_layout.hpp"

#include "mtl/command.hpp"

namespace mtl {
class CommandQueue;
}  // namespace mtl

namespace mps::detail {

/// Whether all that a step reads and writes is the graph's own, and nobody but the graph has its kernel.
bool isSteady(const GraphProgram& program, const GraphLayout& layout, StepIndex index, bool copiesSources);

/// The commands that the steps of an encode have recorded: an encode with the same sizes appends them again, without a check, a
/// hash or a look-up. The library's own.
///
/// That is right for steps whose images and states are the graph's own, and whose kernel nobody but the graph has: all that may
/// change is their layer's parameters, which LayerKernel counts. Steps that share a state are a group, of which all are recorded or
/// none: the state stays from encode to encode, as do its buffers and saved fields. Commands of one queue run in order, so they
/// are written again only when they were read.
class StepRecordings {
 public:
  /// What has to be the same.
  struct Key {
    const GraphLayout* layout = nullptr;
    std::weak_ptr<mtl::CommandQueue> queue;
    int threadCount = 0;
    std::string choice;  ///< choiceKey()
    bool checksFinite = false;
    [[nodiscard]] bool isSame(const Key& other) const;
  };

  struct Release {
    void operator()(StepRecordings* recordings) const { recordings->isInUse_ = false; }
  };
  /// One encode's; null where the encode does without, as one inside another does.
  using Use = std::unique_ptr<StepRecordings, Release>;

  explicit StepRecordings(std::shared_ptr<const GraphProgram> program);

  /// Before an encode. Forgets what does not serve it. @param states gets those of the recorded steps
  /// @param copiesSources steps read copies of the graph's sources, which stay where they are
  [[nodiscard]] Use begin(const Key& key, bool copiesSources, std::vector<StateBatch>& states);
  /// Where an encode has begun, it goes on with what it has. @return whether all is forgotten
  bool forget();
  [[nodiscard]] std::size_t stepCount() const;

  [[nodiscard]] bool has(StepIndex step) const { return isRecorded_[step]; }
  void repeat(StepIndex step, mtl::Submission& submission) const;
  /// Notes what encode() appends, where the step can be repeated.
  template <class Encode>
  void record(StepIndex step, const std::shared_ptr<mtl::Submission>& submission, Encode&& encode) {
    if (!canBeRecorded_[step]) return encode();
    const Recording recording(*this, step, submission);
    encode();
  }
  /// The encode has succeeded. @param states of the program
  void keep(mtl::CommandBuffer& commandBuffer, const std::vector<StateBatch>& states);

 private:
  class Recording {
   public:
    Recording(StepRecordings& recordings, StepIndex step, std::shared_ptr<mtl::Submission> submission);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    StepRecordings& recordings_;
    StepIndex step_;
    std::shared_ptr<mtl::Submission> submission_;
    mtl::RecordingMark mark_;
  };

  void findGroups(const GraphLayout& layout, bool copiesSources);
  void forgetGroup(std::size_t group);

  std::shared_ptr<const GraphProgram> program_;
  Key key_;
  bool isInUse_ = false;
  std::vector<std::size_t> groups_;                  ///< of each step
  std::vector<bool> canBeRecorded_;                  ///< of each step
  std::vector<bool> isRecorded_;                     ///< of each step
  std::vector<std::vector<mtl::Command>> commands_;  ///< of each step
  std::vector<std::size_t> changeCounts_;  ///< of each step's layer, as the recorded encode found it
  std::vector<StateBatch> states_;
  /// Set when the buffer of a recorded encode is let go uncommitted: what its states say of themselves is undone then.
  std::shared_ptr<std::atomic<bool>> isDropped_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace mps::detail
