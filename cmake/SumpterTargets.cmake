# What every target is built with, and the two helpers that declare libraries and tests.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Sums and updates promise bits: no contraction of a multiply and an add into one rounding.
add_library(sumpter_options INTERFACE)
target_compile_options(sumpter_options INTERFACE -ffp-contract=off -Wall -Wextra -Wshadow -Werror)
target_include_directories(sumpter_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
target_compile_definitions(sumpter_options INTERFACE SUMPTER_VERSION="${PROJECT_VERSION}")
if(SUMPTER_SANITIZE)
  target_compile_options(sumpter_options INTERFACE -fsanitize=${SUMPTER_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(sumpter_options INTERFACE -fsanitize=${SUMPTER_SANITIZE})
  if(SUMPTER_SANITIZE MATCHES "undefined")
    target_compile_options(sumpter_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# sumpter_library(NAME SOURCES... [LINK targets...]): the static library sumpter_NAME.
function(sumpter_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(sumpter_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(sumpter_${name} PUBLIC sumpter_options ${ARG_LINK})
endfunction()

# sumpter_test(NAME SOURCES... [LINK targets...] [TIMEOUT seconds] [ARGUMENTS ...] [LABELS ...]):
# one GoogleTest program whose cases ctest knows one by one.
function(sumpter_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE sumpter_options ${ARG_LINK} GTest::gmock GTest::gtest GTest::gtest_main Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
