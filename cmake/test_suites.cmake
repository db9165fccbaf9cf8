# ctest reads this for each test program: every suite of `program` becomes a test of its own, `name`.<suite>.
# A process for each single test would take longer to start than most of them run.
if(NOT EXISTS "${program}")
  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)
  return()
endif()
execute_process(COMMAND "${program}" --gtest_list_tests
  OUTPUT_VARIABLE listed RESULT_VARIABLE status TIMEOUT 60)
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\." suites "\n${listed}")
if(NOT status EQUAL 0 OR NOT suites)
  message(FATAL_ERROR "${program} does not list its tests: ${status}")
endif()
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "^\n(.*)\\.$" "\\1" suite "${suite}")
  add_test("${name}.${suite}" "${program}" --gtest_brief=1 "--gtest_filter=${suite}.*")
  set_tests_properties("${name}.${suite}" PROPERTIES
    WORKING_DIRECTORY "${folder}" TIMEOUT 600 LABELS "${labels}" ENVIRONMENT "${environment}")
endforeach()
