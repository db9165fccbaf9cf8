#pragma once

namespace CLI {  // NOLINT: the library's name
class App;
}

/// The commands of the program: each function adds one, with its options and what it does, from a file of its
/// own.
namespace unmetal {

void addDevicesCommand(CLI::App& program);
void addConformCommand(CLI::App& program);
void addCheckGradientsCommand(CLI::App& program);
void addBenchCommand(CLI::App& program);
/// Hidden: what bench runs in processes of their own.
void addTrainingStepCommand(CLI::App& program);
void addTuneCommand(CLI::App& program);
void addFindLearningRateCommand(CLI::App& program);
void addTrainCommand(CLI::App& program);
void addEvalCommand(CLI::App& program);
void addPredictCommand(CLI::App& program);
void addExportCommand(CLI::App& program);
/// `unmetal completion SHELL` and `unmetal man COMMAND`.
/// @{
void addCompletionCommand(CLI::App& program);
void addManCommand(CLI::App& program);
/// @}
/// The last one: `unmetal help COMMAND`.
void addHelpCommand(CLI::App& program);

}  // namespace unmetal
