"""The files by which Linux describes a machine, in a directory in place of /."""


def write_files(root, files):
    """Write the texts of `files`, by path; return `root`."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return root
