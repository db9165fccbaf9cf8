#include "tools/program.hpp"

int main(int argumentCount, char** arguments) {
  return unmetal::runProgram(argumentCount, arguments);
}
