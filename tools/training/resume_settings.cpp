#include "tools/training/resume_settings.hpp"

#include <string>

namespace unmetal {

void takeSettings(CLI::App& command, const CheckpointFile& file) {
  const auto give = [&](const std::string& name, const std::string& value) {
    CLI::Option* option = command.get_option("--" + name);
    if (option->count() > 0) return;
    option->add_result(value);
    option->run_callback();
  };
  for (const char* name : {"data", "net", "epochs", "batch", "optimizer", "lr", "lr-schedule", "warmup",
                           "weight-decay", "clip-norm", "ema", "best-by", "patience", "class-weights", "seed",
                           "format", "normalize", "picture-size", "validation"})
    if (file.hasSetting(name)) give(name, file.setting(name));
  if (file.hasSetting("freeze") && !file.setting("freeze").empty()) give("freeze", file.setting("freeze"));
  for (const char* flag : {"allow-reduced-precision", "skip-bad", "no-sync-batch-norm"})
    if (file.hasSetting(flag) && file.setting(flag) == "yes") give(flag, "true");
}

}  // namespace unmetal
