#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sumpter/error.h"
#include "tests/support/temporary_directory.h"

namespace sumpter {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class File : public testing::Test {
 protected:
  fs::path file() const { return directory_.path() / "file"; }
  std::size_t entries() const { return std::distance(fs::directory_iterator(directory_.path()), {}); }

  const tests::TemporaryDirectory directory_;
};

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const SystemError& error) {
    return error.what();
  }
  return "";
}

std::string read(InputFile& input, std::size_t bytes) {
  std::string text(bytes, '?');
  input.read(std::as_writable_bytes(std::span(text)));
  return text;
}

TEST_F(File, PartsBecomeOneFileThatReplacesTheOld) {
  const std::vector<std::string_view> parts = {"one", "", std::string_view("\0two", 4), "three"};
  write_file_atomically(file(), "old and longer than the new one");
  write_file_atomically(file(), parts);
  EXPECT_EQ(read_file(file()), std::string("one\0twothree", 12));
  write_file_atomically(file(), std::span<const std::string_view>());
  EXPECT_EQ(read_file(file()), "");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(File, IsReadPartByPart) {
  write_file_atomically(file(), "abcdefgh");
  InputFile input(file());
  EXPECT_EQ(input.size(), 8U);
  EXPECT_EQ(read(input, 3), "abc");
  EXPECT_EQ(read(input, 0), "");
  EXPECT_EQ(read(input, 5), "defgh");
  EXPECT_THAT(message_of([&] { read(input, 1); }), HasSubstr("became shorter than 8 bytes"));
}

TEST_F(File, WhatIsNoFileIsRefused) {
  EXPECT_THAT(message_of([&] { InputFile{file()}; }), HasSubstr(file().string() + ": cannot open: No such file"));
  EXPECT_THAT(message_of([&] { InputFile{directory_.path()}; }), HasSubstr("is a directory or a device"));
  EXPECT_THAT(message_of([&] { InputFile{"/dev/zero"}; }), HasSubstr("is a directory or a device"));
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { InputFile{file()}; }), HasSubstr("is a directory or a device"));
  EXPECT_THAT(message_of([&] { read_file(directory_.path()); }), HasSubstr("is a directory"));
  EXPECT_THAT(message_of([&] { sync_directory(directory_.path() / "missing"); }), HasSubstr("missing: cannot sync"));
}

TEST_F(File, FailedWriteNamesTheFileAndItsBytesAndLeavesNothing) {
  // A file in which nothing has room, where the temporary file would be.
  fs::create_symlink("/dev/full", file().string() + ".partial");
  EXPECT_THAT(message_of([&] { write_file_atomically(file(), "12345"); }),
              HasSubstr("file.partial: cannot write its 5 bytes: No space left on device"));
  EXPECT_EQ(entries(), 0U);
  EXPECT_THAT(message_of([&] { write_file_atomically(directory_.path() / "missing" / "file", "1"); }),
              HasSubstr("cannot create: No such file"));
}

TEST_F(File, ParentOfANameAloneIsHere) {
  EXPECT_EQ(parent_of("name"), ".");
  EXPECT_EQ(parent_of("a/name"), "a");
  EXPECT_EQ(parent_of("/name"), "/");
}

TEST_F(File, DescriptorClosesOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const auto is_open = [](int fd) { return fcntl(fd, F_GETFD) >= 0; };
  {
    FileDescriptor first(ends[0]), second(ends[1]);
    FileDescriptor moved(std::move(first));
    EXPECT_EQ(moved.get(), ends[0]);
    moved = std::move(second);
    EXPECT_EQ(moved.get(), ends[1]);
    EXPECT_TRUE(is_open(ends[1]));
    EXPECT_FALSE(FileDescriptor().is_open());
  }
  EXPECT_FALSE(is_open(ends[0]));
  EXPECT_FALSE(is_open(ends[1]));
}

}  // namespace
}  // namespace sumpter
