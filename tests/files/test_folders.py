"""Folders of tensors: savers and readers side by side, kills at every point, and damage."""

import contextlib
import errno
import json
import multiprocessing
import os
import random
import stat

import pytest
import torch

import bitgnn._checksummed as checksummed
import bitgnn._files as files
from bitgnn import FileError
from bitgnn._checksummed import migrated, read_folder, sealed, write_folder

NAME, PREFIX = "model.json", "weights"
LOADS, SAVES = 200, 40


def write(folder, number):
    """A generation whose description and tensors say the same number."""
    tensors = {"a": torch.full((50,), number), "b": torch.full((3, 4), float(number))}
    write_folder(folder, NAME, PREFIX, {"format": 1, "number": number}, tensors)


def read(folder):
    description, tensors = read_folder(folder, NAME, "model", lambda found, _: found)
    number = description["number"]
    assert tensors["a"].tolist() == [number] * 50
    assert tensors["b"].tolist() == [[number] * 4] * 3
    return number


def weights(folder):
    return folder / json.loads((folder / NAME).read_text())["tensors"]["file"]


def saves(folder, start):
    for number in range(SAVES):
        write(folder, start + number)


@pytest.mark.parametrize("has_locks", [True, False])
def test_readers_beside_two_savers_find_whole_models(tmp_path, monkeypatch, has_locks):
    def refuse(*_):
        raise OSError("this file system has no locks")

    if not has_locks:
        monkeypatch.setattr(files.fcntl, "flock", refuse)
    write(tmp_path, 0)
    context = multiprocessing.get_context("fork")
    savers = [context.Process(target=saves, args=(tmp_path, start)) for start in (100, 200)]
    for process in savers:
        process.start()
    found = [read(tmp_path) for _ in range(LOADS if has_locks else 0)]
    for process in savers:
        process.join(60)
    assert [process.exitcode for process in savers] == [0, 0]
    assert set(found) <= {0, *range(100, 100 + SAVES), *range(200, 200 + SAVES)}
    assert read(tmp_path) in (99 + SAVES, 199 + SAVES)
    if has_locks:
        assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, weights(tmp_path).name]


def test_files_of_the_user_stay(tmp_path):
    mine = ["weights-mine.safetensors", "weights-0123456789abcde.safetensors", ".model.json.swp"]
    for name in mine:
        (tmp_path / name).write_text(name)
    for number in range(3):
        write(tmp_path, number)
    assert [(tmp_path / name).read_text() for name in mine] == mine
    assert len(list(tmp_path.iterdir())) == 2 + len(mine)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("cleans_up", [False, True])
def test_a_kill_at_every_call_of_the_system(tmp_path, monkeypatch, when, cleans_up):
    """Each call of a save in turn is the last one; with no cleaning up, as after kill -9."""
    names = ("open", "fdopen", "fsync", "replace", "close", "unlink")
    real = {name: getattr(os, name) for name in names}
    done, last, killed = 0, 0, False

    def counting(name):
        def call(*arguments, **keywords):
            nonlocal done, killed
            if killed and not cleans_up and name == "unlink":
                raise Killed
            done += 1
            if done == last and when == "before":
                killed = True
                if name == "close":  # the system lets go of files and locks of a killed process
                    real[name](*arguments)
                raise Killed
            result = real[name](*arguments, **keywords)
            if done == last:
                killed = True
                if name == "fdopen":
                    result.close()
                raise Killed
            return result

        return call

    for number in range(1, 100):
        folder = tmp_path / str(number)
        write(folder, 1)
        done, last, killed = 0, number, False
        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(files.os, name, counting(name))
            with contextlib.suppress(Killed):
                write(folder, 2)
        assert read(folder) in (1, 2), number
        write(folder, 3)
        assert read(folder) == 3
        if not killed:
            break
        left = {path.name for path in folder.iterdir()} - {NAME, weights(folder).name}
        # A generation may be left where the end came while the old one was to be removed.
        assert not [name for name in left if name.endswith(".tmp")], number
        assert len(left) <= 1, number
    else:
        pytest.fail("a save makes too many calls")
    assert number > 10


def test_a_full_disk_leaves_the_old_generation_alone_and_names_the_file(tmp_path, monkeypatch):
    write(tmp_path, 1)
    before = sorted(tmp_path.iterdir())

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/weights-.*\.safetensors'"):
        write(tmp_path, 2)
    assert sorted(tmp_path.iterdir()) == before
    assert read(tmp_path) == 1


def test_modes_follow_the_umask(tmp_path):
    for mask, mode in ((0o077, 0o600), (0o022, 0o644)):
        before = os.umask(mask)
        try:
            write(tmp_path, 1)
        finally:
            os.umask(before)
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {mode}


def test_random_damage_gives_one_error_and_never_another_model(tmp_path):
    """Bits turned, files cut, bytes put in: the model itself is read, or one error is raised."""
    chance = random.Random(0)
    write(tmp_path, 7)
    file = weights(tmp_path)
    for path in (tmp_path / NAME, file):
        good = path.read_bytes()
        for _ in range(300):
            bad = bytearray(good)
            place = chance.randrange(len(bad))
            kind = chance.choice(["bit", "cut", "put", "copy"])
            if kind == "bit":
                bad[place] ^= 1 << chance.randrange(8)
            elif kind == "cut":
                del bad[place:]
            elif kind == "put":
                bad[place:place] = chance.randbytes(3)
            else:
                end = place + chance.randrange(1, 9)
                bad[place:end] = good[: end - place]
            path.write_bytes(bad)
            with contextlib.suppress(FileError):
                assert read(tmp_path) == 7
        path.write_bytes(good)
    assert read(tmp_path) == 7


def test_files_of_two_models_do_not_mix(tmp_path):
    for number in (1, 2):
        write(tmp_path / str(number), number)
    own, other = (weights(tmp_path / name) for name in "12")
    own.write_bytes(other.read_bytes())
    with pytest.raises(FileError, match=r"safetensors: was altered"):
        read(tmp_path / "1")
    own.unlink()
    with pytest.raises(FileError, match=r"model\.json: names weights-.*, which is missing"):
        read(tmp_path / "1")


@pytest.mark.parametrize("target", [NAME, "weights"])
def test_only_regular_files_of_the_folder_are_opened(tmp_path, target):
    write(tmp_path / "a", 1)
    path = tmp_path / "a" / NAME if target == NAME else weights(tmp_path / "a")
    outside = tmp_path / "outside"
    path.rename(outside)

    def refused(message):
        with pytest.raises(FileError, match=message):
            read(tmp_path / "a")
        path.rmdir() if path.is_dir() else path.unlink()

    path.symlink_to(outside)
    refused("is a symbolic link")
    path.symlink_to("/dev/zero")
    refused("is a symbolic link")
    os.mkfifo(path)
    refused("must be a regular file")
    path.mkdir()
    refused("must be a regular file")


def test_manifests_name_plain_files_and_keep_their_order(tmp_path):
    layers = {"second": 1, "first": 2, "10": 3, "9": 4}
    write_folder(tmp_path, NAME, PREFIX, {"format": 1, "layers": layers}, {})
    description, _ = read_folder(tmp_path, NAME, "model", lambda found, _: found)
    assert list(description["layers"]) == list(layers)
    good = json.loads((tmp_path / NAME).read_text())
    sorted_layers = {**good, "layers": dict(sorted(layers.items()))}
    for file in ("../x.safetensors", "..", "", "a/b.safetensors", "x" * 9999, 3):
        tensors = {**good["tensors"], "file": file}
        (tmp_path / NAME).write_text(json.dumps(sealed({**good, "tensors": tensors})))
        with pytest.raises(FileError, match="tensor file"):
            read(tmp_path)
    (tmp_path / NAME).write_text(json.dumps(sorted_layers))
    with pytest.raises(FileError, match="was altered"):
        read(tmp_path)


def test_long_headers_and_large_manifests_are_refused(tmp_path, monkeypatch):
    write(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checksummed, "HEADER_BYTES", 50)
        with pytest.raises(FileError, match="its header has"):
            read(tmp_path)
    (tmp_path / NAME).write_bytes(b" " * (files.TEXT_BYTES + 1))
    with pytest.raises(FileError, match=r"model\.json: has .* bytes, at most"):
        read(tmp_path)


def test_older_formats_are_migrated_step_by_step():
    steps = {
        1: lambda old: {**old, "name": old["title"]},
        2: lambda old: {"format": 0, "names": [old["name"]]},
    }
    new = migrated({"format": 1, "title": "x"}, "format", 3, steps, "file")
    assert new == {"format": 3, "names": ["x"]}
    assert migrated({"format": 3}, "format", 3, steps, "file") == {"format": 3}
    for unknown in (0, 4, -(10**30), "3", None, True, 2.0):
        with pytest.raises(FileError, match=r"file: format .* is unknown"):
            migrated({"format": unknown}, "format", 3, steps, "file")


def test_bools_of_other_bytes_are_refused(tmp_path):
    flip = torch.tensor([0, 1, 2], dtype=torch.uint8).view(torch.bool)
    write_folder(tmp_path, NAME, PREFIX, {}, {"flip": flip})
    with pytest.raises(FileError, match="'flip' holds bools that are neither 0 nor 1"):
        read_folder(tmp_path, NAME, "model", lambda found, _: found)


def test_tensor_files_of_killed_savers_go_with_the_next_save(tmp_path):
    write(tmp_path, 1)
    orphan, mine = (tmp_path / f"weights-{name}.safetensors" for name in ("0" * 16, "mine"))
    for file in (orphan, mine):
        file.write_bytes(weights(tmp_path).read_bytes())
    other = tmp_path / f"parameters-{'0' * 16}.safetensors"  # of another manifest
    other.write_bytes(b"")
    write(tmp_path, 2)
    assert read(tmp_path) == 2
    kept = {path.name for path in tmp_path.glob("*.safetensors")}
    assert kept == {weights(tmp_path).name, mine.name, other.name}


def test_temporary_files_of_killed_writers_go_with_the_next_write(tmp_path):
    target = tmp_path / "store[1].bin"
    gone, held, other = (
        tmp_path / f".{name}.{'0' * 7}{number}.tmp"
        for number, name in enumerate([target.name, target.name, "store1.bin"])
    )
    for file in (gone, held, other):
        file.write_bytes(b"half")
    with held.open() as writer:
        files.fcntl.flock(writer, files.fcntl.LOCK_EX)
        with files.atomic_file(target) as file:
            file.write(b"whole")
            assert len(files.temporaries(tmp_path, "store[[]1].bin")) == 2
    assert target.read_bytes() == b"whole"
    assert not gone.exists()
    assert all(file.exists() for file in (held, other))


def test_a_temporary_file_removed_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    target, lock, removed = tmp_path / "store.bin", files.fcntl.flock, []

    def late(handle, how):
        if not removed:
            removed.extend(files.temporaries(tmp_path, target.name))
            removed[0].unlink()
        lock(handle, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    files.write_atomically(target, b"whole")
    assert removed
    assert [file.name for file in tmp_path.iterdir()] == [target.name]
    assert target.read_bytes() == b"whole"
