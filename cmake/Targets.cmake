# How a folder becomes a target.
include(GoogleTest)

add_library(be_warnings INTERFACE)
target_compile_options(be_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror)

# One translation unit a target: all of it builds in a third of the time. So names in the unnamed
# namespaces of one target must differ (apps, bench_allocator and tests/unit/memory do without). OFF
# for tools that look at one file at a time (scripts/lint) and for who edits one file all day.
option(BE_UNITY "Compile all files of a target as one" ON)
set(CMAKE_UNITY_BUILD ${BE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

# Where a test may stop or kill a process between two steps (be/base/failpoint.h). On in builds with
# assertions; linked by the folders that have failpoints and by the tests that arm them.
set(failpoints_default OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(failpoints_default ON)
endif()
option(BE_FAILPOINTS "Compile failpoints in" ${failpoints_default})
add_library(be_failpoints INTERFACE)
if(BE_FAILPOINTS)
  target_compile_definitions(be_failpoints INTERFACE BE_FAILPOINTS)
endif()

# be_protobuf(TARGET FOLDER [LINK LIBRARIES...]): compiles FOLDER's *.proto files, if it has any,
# into the static library TARGET. A file a/b.proto is included as "a/b.pb.h", imported as
# "a/b.proto".
function(be_protobuf target folder)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB protos CONFIGURE_DEPENDS ${folder}/*.proto)
  if(NOT protos)
    return()
  endif()
  set(root ${CMAKE_BINARY_DIR}/generated)
  foreach(proto ${protos})
    cmake_path(RELATIVE_PATH proto BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
    cmake_path(REMOVE_EXTENSION name)
    add_custom_command(
      OUTPUT ${root}/${name}.pb.cc ${root}/${name}.pb.h
      COMMAND ${CMAKE_COMMAND} -E make_directory ${root}
      COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR} --cpp_out=${root} ${proto}
      DEPENDS ${proto} protobuf::protoc
      VERBATIM)
    list(APPEND generated ${root}/${name}.pb.cc)
  endforeach()
  add_library(${target} STATIC ${generated})
  target_include_directories(${target} SYSTEM PUBLIC ${root})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf ${ARG_LINK})
endfunction()

# be_library(FOLDER [AFTER FOLDER] [LINK LIBRARIES...]): the static library be_FOLDER of all *.cc
# files below this folder, linked to the layer before it. It is an interface library while the
# folder has no source file.
function(be_library folder)
  cmake_parse_arguments(ARG "" "AFTER" "LINK" ${ARGN})
  if(ARG_AFTER)
    list(APPEND ARG_LINK be_${ARG_AFTER})
  endif()
  be_protobuf(be_${folder}_proto . LINK ${ARG_LINK})
  if(TARGET be_${folder}_proto)
    list(APPEND ARG_LINK be_${folder}_proto)
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  if(sources)
    add_library(be_${folder} STATIC ${sources})
    target_include_directories(be_${folder} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(be_${folder} PUBLIC ${ARG_LINK} PRIVATE be_warnings)
  else()
    add_library(be_${folder} INTERFACE)
    target_include_directories(be_${folder} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(be_${folder} INTERFACE ${ARG_LINK})
  endif()
endfunction()

# be_program(NAME SOURCES... [LINK LIBRARIES...]): a program of this project.
function(be_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ByteExpress::byteexpress be_warnings ${ARG_LINK})
endfunction()
