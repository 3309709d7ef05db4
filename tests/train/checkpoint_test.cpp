#include "train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "sumpter/error.h"
#include "tests/support/members.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/checkpoints.h"

namespace sumpter {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using tests::Arrays;
using tests::expect_all_whole;
using tests::MadeUp;
using tests::message_of;
using tests::names_in;
namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
 protected:
  // Made by the first folder.
  fs::path directory() const { return temporary_.path() / "a" / "checkpoints"; }
  fs::path step(int number) const { return directory() / fmt::format("step-{:09}", number); }
  void write(int step, bool best, int keep = 10, int version = 0) const {
    CheckpointFolder(directory(), keep).write(MadeUp(step, version).content(), best);
  }
  std::optional<LoadedCheckpoint> newest() const { return CheckpointFolder(directory(), 1).newest(); }
  std::uint64_t newest_step() const { return newest().value().step; }
  std::string link(const char* name) const { return fs::read_symlink(directory() / name); }

  const tests::TemporaryDirectory temporary_;
};

TEST_F(Checkpoint, NewestComesBackBitForBit) {
  EXPECT_FALSE(newest().has_value());
  CheckpointFolder folder(directory(), 2);
  folder.write(MadeUp(9).content(), false);
  folder.write(MadeUp(1'234'567'890'123).content(), false);
  const LoadedCheckpoint loaded = folder.newest().value();
  EXPECT_EQ(loaded.directory, directory() / "step-1234567890123");
  MadeUp(1'234'567'890'123).expect_in(loaded);
  MadeUp(9).expect_in(load_checkpoint(step(9)));
  EXPECT_EQ(link("latest"), "step-1234567890123");
  EXPECT_THAT(names_in(directory()), ElementsAre("latest", "step-000000009", "step-1234567890123"));
}

TEST_F(Checkpoint, EmptyContentIsContent) {
  CheckpointFolder folder(directory(), 1);
  const auto empty = nlohmann::ordered_json::object();
  folder.write({.step = 0, .weights = {}, .state = {}, .facts = empty, .progress = empty}, true);
  const LoadedCheckpoint loaded = folder.newest().value();
  EXPECT_EQ(loaded.step, 0U);
  EXPECT_TRUE(loaded.weights.arrays().empty());
  EXPECT_EQ(loaded.facts, empty);
}

TEST_F(Checkpoint, KeepsTheNewestAndTheBest) {
  CheckpointFolder folder(directory(), 2);
  folder.write(MadeUp(1).content(), false);
  folder.write(MadeUp(2).content(), true);
  folder.write(MadeUp(3).content(), false);
  EXPECT_THAT(expect_all_whole(directory()), ElementsAre(2, 3));
  folder.write(MadeUp(4).content(), false);
  folder.write(MadeUp(5).content(), false);
  EXPECT_THAT(expect_all_whole(directory()), ElementsAre(2, 4, 5));
  EXPECT_EQ(link("best"), "step-000000002");
  EXPECT_EQ(link("latest"), "step-000000005");
  folder.write(MadeUp(6).content(), true);
  EXPECT_THAT(names_in(directory()), ElementsAre("best", "latest", "step-000000005", "step-000000006"));
  EXPECT_EQ(link("best"), "step-000000006");
}

// A damaged one of a later step must not crowd out what this run writes.
TEST_F(Checkpoint, LaterStepsNeitherCountNorGo) {
  write(30, false);
  CheckpointFolder folder(directory(), 1);
  folder.write(MadeUp(10).content(), false);
  folder.write(MadeUp(11).content(), false);
  EXPECT_THAT(expect_all_whole(directory()), ElementsAre(11, 30));
}

TEST_F(Checkpoint, SameStepIsReplaced) {
  write(5, true, 2, 0);
  write(6, false, 2, 0);
  write(5, false, 2, 1);
  MadeUp(5, 1).expect_in(load_checkpoint(step(5)));
  EXPECT_THAT(names_in(directory()), ElementsAre("best", "latest", "step-000000005", "step-000000006"));
}

TEST_F(Checkpoint, LeftoversAreCleared) {
  write(1, false);
  write(2, false);
  fs::copy(step(1), directory() / ".removing-step-000000007");
  fs::copy(step(1), directory() / ".writing-step-000000008");
  fs::remove(directory() / ".writing-step-000000008" / "state.safetensors");
  fs::create_symlink("step-000000001", directory() / ".writing-latest");
  fs::rename(step(1), directory() / ".replaced-step-000000001");  // killed before the new one had the name
  fs::copy(step(2), directory() / ".replaced-step-000000002");    // killed after that
  std::ofstream(directory() / "notes.txt") << "not ours";
  fs::create_directory(directory() / "step-7");
  EXPECT_EQ(newest_step(), 2U);
  EXPECT_THAT(names_in(directory()), ElementsAre("latest", "notes.txt", "step-000000001", "step-000000002", "step-7"));
  MadeUp(1).expect_in(load_checkpoint(step(1)));
}

// Every byte of both files.
TEST_F(Checkpoint, NoDamageGoesUnnoticed) {
  write(1, false);
  for (const char* name : {"weights.safetensors", "state.safetensors"}) {
    const fs::path file = step(1) / name;
    const std::string whole = read_file(file);
    const std::uint64_t header = *reinterpret_cast<const std::uint64_t*>(whole.data());
    const std::size_t padding_end = 8 + header, padding_begin = whole.find_last_of('}', padding_end - 1) + 1;
    for (std::size_t place = 0; place < whole.size(); ++place) {
      if (place >= padding_begin && place < padding_end) continue;  // spaces: other white space means the same
      std::string damaged = whole;
      damaged[place] = static_cast<char>(damaged[place] ^ 4);
      fs::remove(file);
      std::ofstream(file, std::ios::binary) << damaged;
      EXPECT_THAT(message_of<DataError>([&] { load_checkpoint(step(1)); }), StartsWith(step(1).string()))
          << name << " " << place;
    }
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << whole;
  }
  MadeUp(1).expect_in(load_checkpoint(step(1)));
}

TEST_F(Checkpoint, DamagedOnesArePassedOver) {
  for (int number = 1; number <= 5; ++number) write(number, false);
  fs::remove(step(5) / "weights.safetensors");
  fs::resize_file(step(4) / "state.safetensors", 100);
  fs::copy(step(1) / "weights.safetensors", step(3) / "weights.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_EQ(newest_step(), 2U);
  // Under another's name.
  fs::remove_all(step(2));
  fs::rename(step(1), step(2));
  EXPECT_THAT(message_of<DataError>([&] { newest(); }),
              AllOf(HasSubstr("no whole checkpoint, only damaged ones"),
                    HasSubstr("step-000000005/weights.safetensors"), HasSubstr("remove them to start anew")));
  MadeUp(6).expect_in((write(6, false), newest().value()));
}

TEST_F(Checkpoint, FilesThatBelongToNoCheckpointAreRefused) {
  write(1, false);
  const auto refusal = [&](const Metadata& metadata) {
    write_safetensors({}, step(1) / "state.safetensors", metadata);
    return message_of<DataError>([&] { load_checkpoint(step(1)); });
  };
  // With the digest that such a description has.
  const auto refusal_of = [&](const std::string& text) {
    Arrays described;
    described.add("checkpoint", ElementType::u8, {static_cast<std::int64_t>(text.size())},
                  std::vector<char>(text.begin(), text.end()));
    return refusal({{"checkpoint", text}, {"digest", digest(described.views())}});
  };
  EXPECT_THAT(refusal({}), HasSubstr("its metadata has no \"checkpoint\""));
  EXPECT_THAT(refusal({{"checkpoint", "{}"}}), HasSubstr("its metadata has no \"digest\""));
  EXPECT_THAT(refusal({{"checkpoint", "{}"}, {"digest", "x"}}), HasSubstr("is damaged"));
  EXPECT_THAT(refusal_of("{"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal_of("[]"), HasSubstr("is no object"));
  EXPECT_THAT(refusal_of(std::string(100'000, '[')), HasSubstr("nests deeper than"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("no \"format\" that is a number"));
  EXPECT_THAT(refusal_of(R"({"format": "1"})"), HasSubstr("no \"format\" that is a number"));
  EXPECT_THAT(refusal_of(R"({"format": 2})"), HasSubstr("has format 2; this version reads format 1"));
  EXPECT_THAT(refusal_of(R"({"format": 1, "step": -1})"), HasSubstr("no \"step\" that is a number"));
  EXPECT_THAT(refusal_of(R"({"format": 1, "step": 1})"), HasSubstr("no \"weights_digest\" that is a text"));
  const std::string begin = R"({"format": 1, "step": 1, "weights_digest": "x", )";
  EXPECT_THAT(refusal_of(begin + R"("facts": []})"), HasSubstr("no \"facts\" that is an object"));
  EXPECT_THAT(refusal_of(begin + R"("facts": {}})"), HasSubstr("no \"progress\" that is an object"));
  EXPECT_THAT(refusal_of(begin + R"("facts": {}, "progress": {}})"), HasSubstr("weights.safetensors: is damaged or"));
}

TEST_F(Checkpoint, OneFolderAtATime) {
  const std::string pid = fmt::format("(pid {})", getpid());
  std::optional<CheckpointFolder> folder(std::in_place, directory(), 1);
  const auto refusal = [&] { return message_of<RequestError>([&] { CheckpointFolder(directory(), 1); }); };
  EXPECT_THAT(refusal(), AllOf(HasSubstr("another run " + pid), HasSubstr("name another directory")));
  folder.reset();
  EXPECT_EQ(refusal(), "");
  // A process that is killed lets go.
  tests::Members members(1, tests::As::processes, [&](tests::Member& member) {
    const CheckpointFolder held(directory(), 1);
    member.say("held");
    member.hear();
  });
  EXPECT_EQ(members.hear(0), "held");
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("another run (pid {})", members.pid(0))));
  members.send(0, SIGKILL);
  members.wait(0);
  EXPECT_EQ(refusal(), "");
}

TEST_F(Checkpoint, UnusablePlacesAreRefused) {
  const auto refusal = [&](const fs::path& place, int keep = 1) {
    return message_of<RequestError>([&] { CheckpointFolder(place, keep); });
  };
  EXPECT_THAT(refusal(directory(), 0), HasSubstr("keep 1 or more"));
  EXPECT_FALSE(fs::exists(directory()));
  std::ofstream(temporary_.path() / "file") << "x";
  EXPECT_THAT(refusal(temporary_.path() / "file"), HasSubstr("file: cannot make the directory"));
  EXPECT_THAT(refusal(temporary_.path() / "file" / "below"), HasSubstr("Not a directory"));
  if (geteuid() == 0) return;  // root may write anywhere
  fs::create_directories(directory());
  fs::permissions(directory(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal(directory()), HasSubstr("cannot be written: Permission denied"));
  fs::permissions(directory(), fs::perms::owner_all);
}

TEST_F(Checkpoint, ContentThatNoFileHoldsLeavesTheOthers) {
  CheckpointFolder folder(directory(), 1);
  folder.write(MadeUp(1).content(), true);
  const MadeUp made_up(2);
  CheckpointContent content = made_up.content();
  content.facts["name"] = "\xff";
  EXPECT_THROW(folder.write(content, false), RequestError);
  content = made_up.content();
  content.progress = nullptr;
  EXPECT_THROW(folder.write(content, false), RequestError);
  content = made_up.content();
  const std::vector<NamedArray> twice = {content.state[0], content.state[0]};
  content.state = twice;
  EXPECT_THROW(folder.write(content, false), RequestError);
  EXPECT_THAT(names_in(directory()), ElementsAre("best", "latest", "step-000000001"));
  EXPECT_THAT(expect_all_whole(directory()), ElementsAre(1));
}

}  // namespace
}  // namespace sumpter
