"""Only a disk that is known to be local is called local."""

import pytest

from factmem.experiments.disk import is_local

MOUNTS = r"""/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/local xfs rw 0 0
tmpfs /with\040space tmpfs rw 0 0
//pc/share /with\040space/share cifs rw 0 0
/dev/vdc /twice ext4 rw 0 0
server:/twice /twice nfs rw 0 0
host /fuse fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/runs.sqlite", True),
        ("/homeless/runs.sqlite", True),
        ("/home/user/runs.sqlite", False),
        ("/home/local/deep/runs.sqlite", True),
        ("/home/localized/runs.sqlite", False),
        ("/with space/runs.sqlite", True),
        ("/with space/share/runs.sqlite", False),
        ("/twice/runs.sqlite", False),
        ("/fuse/runs.sqlite", False),
        ("/proc/runs.sqlite", False),
        ("/home/local/../runs.sqlite", False),
    ],
)
def test_the_deepest_mount_point_decides(tmp_path, path, local):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert is_local(path, mounts) is local


def test_a_file_may_be_a_mount_point(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/vda / ext4 rw 0 0\nserver:/f /data/runs.sqlite nfs rw 0 0\n")
    assert not is_local("/data/runs.sqlite", mounts)
    assert is_local("/data/other.sqlite", mounts)


def test_no_file_is_local_without_a_mount_table(tmp_path):
    assert not is_local("/runs.sqlite", tmp_path / "none")
    (tmp_path / "empty").write_text("")
    assert not is_local("/runs.sqlite", tmp_path / "empty")


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "mounts").write_text(
        f"/dev/vda / nfs rw 0 0\n/dev/vdb {tmp_path}/disk ext4 rw 0 0\n"
    )
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert is_local(tmp_path / "link" / "runs.sqlite", tmp_path / "mounts")
