"""The data that the clients work with: the large file, the large directory, odd names."""
import hashlib
import os

LARGE = 64 << 20
ENTRIES = 3000
NAMES = ["Grüße an alle.txt", "日本語のファイル.txt", "snow ☃ man.txt", "emoji 😀 pair.txt", "e\u0301 combining.txt",
         "ΑΒΓδε.txt", "#[x] ~ %41 'q' .txt"]


def large_file(folder):
    """64 MiB that cannot be compressed; the same for all clients of a run."""
    path = folder / "large.bin"
    if not path.exists():
        path.write_bytes(os.urandom(1 << 20) * (LARGE >> 20))
    return path, digest(path)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def large_directory(share):
    """`many` with 3,000 files, created on the server."""
    many = share / "many"
    many.mkdir(exist_ok=True)
    for number in range(ENTRIES):
        (many / f"entry{number:04}.txt").touch()
    return many
