# sumpter_torch: libtorch as an INTERFACE target, without a CUDA toolkit. torch's own package file asks for the toolkit
# where torch was built with CUDA; what the CPU's half needs is two libraries and two include directories.
#
#   SUMPTER_PYTHON   a Python that has torch; else the one recorded by tools/setup in build/python, else .venv
#   Torch_DIR        instead: share/cmake/Torch of a plain libtorch
#
# Sets SUMPTER_TORCH_VERSION and SUMPTER_TORCH_ROOT, and SUMPTER_TORCH_PYTHON to the Python that has it, if one does.
set(SUMPTER_PYTHON "" CACHE FILEPATH "A Python that has torch (default: build/python, .venv)")
set(SUMPTER_TORCH_OLDEST 2.11)
set(SUMPTER_TORCH_NEWEST 2.15)

# Sets <out> to the Python to ask, or to nothing.
function(sumpter_find_torch_python out)
  set(python "${SUMPTER_PYTHON}")
  if(NOT python AND SKBUILD)  # pip: the environment that it installs into, and no other
    set(python "${Python_EXECUTABLE}")
  endif()
  if(NOT python AND EXISTS ${PROJECT_SOURCE_DIR}/build/python)
    file(STRINGS ${PROJECT_SOURCE_DIR}/build/python python LIMIT_COUNT 1)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/build/python)
  endif()
  if(NOT python AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  endif()
  set(${out} "${python}" PARENT_SCOPE)
endfunction()

# What an installed Python package says of itself: root, version, ABI.
function(sumpter_ask_python python out_root out_version out_abi)
  execute_process(
    COMMAND ${python} -c "import os, torch; print(os.path.dirname(torch.__file__), torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), sep=';')"
    OUTPUT_VARIABLE answer ERROR_VARIABLE complaint RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0 AND SKBUILD AND complaint MATCHES "No module named 'torch'")
    message(FATAL_ERROR "torch is not there: sumpter is built against the torch of the environment that it is installed into. "
                        "Install torch ${SUMPTER_TORCH_OLDEST} to ${SUMPTER_TORCH_NEWEST} and scikit-build-core there, then: "
                        "pip install --no-build-isolation .   (without the option pip builds where that torch is not seen)")
  endif()
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "Looked for torch in ${python}, which cannot import it:\n${complaint}\n"
                        "Run tools/setup, or name a Python that has torch: -DSUMPTER_PYTHON=/path/to/python, "
                        "or leave torch out: -DSUMPTER_TORCH=OFF")
  endif()
  list(GET answer 0 root)
  list(GET answer 1 version)
  list(GET answer 2 abi)
  set(${out_root} ${root} PARENT_SCOPE)
  set(${out_version} ${version} PARENT_SCOPE)
  set(${out_abi} ${abi} PARENT_SCOPE)
endfunction()

# The same of a plain libtorch: its headers hold the version; every one in range has the new ABI.
function(sumpter_ask_libtorch out_root out_version out_abi)
  get_filename_component(root ${Torch_DIR}/../../.. ABSOLUTE)
  set(header ${root}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${header})
    set(header ${root}/include/torch/csrc/api/include/torch/version.h)
  endif()
  if(NOT EXISTS ${header})
    message(FATAL_ERROR "Torch_DIR is ${Torch_DIR}, and ${root} holds no libtorch. "
                        "Give <libtorch>/share/cmake/Torch, or a Python that has torch: -DSUMPTER_PYTHON=/path/to/python")
  endif()
  file(STRINGS ${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]+" "" numbers "${lines}")
  list(JOIN numbers "." version)
  set(${out_root} ${root} PARENT_SCOPE)
  set(${out_version} ${version} PARENT_SCOPE)
  set(${out_abi} 1 PARENT_SCOPE)
endfunction()

sumpter_find_torch_python(torch_python)
if(Torch_DIR)
  sumpter_ask_libtorch(torch_root SUMPTER_TORCH_VERSION torch_abi)
elseif(torch_python)
  sumpter_ask_python("${torch_python}" torch_root SUMPTER_TORCH_VERSION torch_abi)
else()
  message(FATAL_ERROR "torch is needed and no Python is known to have it. Run tools/setup, or name one: "
                      "-DSUMPTER_PYTHON=/path/to/python, or give Torch_DIR, or leave torch out: -DSUMPTER_TORCH=OFF")
endif()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_series "${SUMPTER_TORCH_VERSION}")
if(torch_series VERSION_LESS SUMPTER_TORCH_OLDEST OR torch_series VERSION_GREATER SUMPTER_TORCH_NEWEST)
  message(FATAL_ERROR "torch ${SUMPTER_TORCH_OLDEST} to ${SUMPTER_TORCH_NEWEST} is needed, and ${torch_root} is "
                      "${SUMPTER_TORCH_VERSION}. Name another with -DSUMPTER_PYTHON or -DTorch_DIR.")
endif()

set(torch_libraries ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so)
foreach(library ${torch_libraries})
  if(NOT EXISTS ${library})
    message(FATAL_ERROR "torch ${SUMPTER_TORCH_VERSION} lacks ${library}. Install it anew, or name another.")
  endif()
endforeach()

add_library(sumpter_torch INTERFACE)
# As system headers, their warnings being not ours, and behind the system's own: torch brings a copy of fmt, which would
# otherwise be taken for the one that everything else is built with.
target_compile_options(sumpter_torch INTERFACE "SHELL:-idirafter ${torch_root}/include"
                                               "SHELL:-idirafter ${torch_root}/include/torch/csrc/api/include")
target_compile_definitions(sumpter_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_abi})
# Registrations in libtorch_cpu run when it is loaded, so it has to be, whether a symbol of it is used or not. What these
# two need in their turn (CUDA's runtime, in a wheel built with it) they find by their own RPATH, which the linker, when it
# looks for undefined symbols, does not follow.
target_link_libraries(sumpter_torch INTERFACE -Wl,--no-as-needed ${torch_libraries} -Wl,--as-needed
                                              -Wl,--allow-shlib-undefined)
if(NOT SKBUILD)  # in a wheel, torch lies beside the package (python/CMakeLists.txt)
  target_link_options(sumpter_torch INTERFACE -Wl,-rpath,${torch_root}/lib)
endif()

set(SUMPTER_TORCH_ROOT ${torch_root})
set(SUMPTER_TORCH_PYTHON "")
if(NOT Torch_DIR)
  set(SUMPTER_TORCH_PYTHON ${torch_python})
endif()

message(STATUS "torch ${SUMPTER_TORCH_VERSION}: ${torch_root}")
