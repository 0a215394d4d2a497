"""Attempts on files: keys, tokens, the folders of others, the system."""

from __future__ import annotations

from pathlib import Path

from mycel.drivers.interface import Finished

from .attack import Attack, Scene


def _read(name: str, expression: str) -> Attack:
    return Attack(name, f'escaped(scene["secret"] in open({expression}).read())')


def _wrote_outside(scene: Scene, _end: Finished) -> bool:
    return (scene.outside / "written").exists()


def _wrote_to(folder: str) -> Attack:
    def look(scene: Scene, _end: Finished) -> bool:
        path = Path(folder) / f"mycel-attack-{scene.facts['mark']}"
        found = path.exists()
        path.unlink(missing_ok=True)
        return found

    script = f'open("{folder}/mycel-attack-" + scene["mark"], "w").close()'
    return Attack(f"writes to {folder}", script, look)


ATTACKS = [
    _read("reads the token of the API", 'scene["token"]'),
    _read("reads the owner's key", 'scene["owner_key"]'),
    _read("reads the node's key", 'scene["identity_key"]'),
    _read("reads the file of another task", 'scene["other"] + "/file"'),
    _read("reads the token by way of ..", '"../../../home/token"'),
    Attack(
        "reads the token through the first process",
        'escaped(scene["secret"] in open("/proc/1/root" + scene["token"]).read())',
        no_control="in a container, that process has another root",
    ),
    _read("reads the token through its parent", 'f"/proc/{os.getppid()}/root" + scene["token"]'),
    Attack(
        "reads the token through a link",
        'os.symlink(scene["token"], "link")\nescaped(scene["secret"] in open("link").read())',
    ),
    Attack(
        "links the token into its folder",
        'os.link(scene["token"], "hard")\nescaped(scene["secret"] in open("hard").read())',
    ),
    Attack("lists the folders of other tasks", 'escaped(os.listdir(scene["other"]))'),
    Attack("reads the passwords of the machine", 'escaped(open("/etc/shadow").read())'),
    Attack(
        "looks into the home of root",
        'import pathlib\nescaped(any(p.is_file() for p in pathlib.Path("/root").iterdir()))',
    ),
    Attack("looks into /run", 'escaped(os.listdir("/run"))'),
    Attack("looks into /var/lib", 'escaped(os.listdir("/var/lib"))'),
    Attack(
        "writes outside of its folder",
        'open(scene["outside"] + "/written", "w").close()',
        _wrote_outside,
    ),
    Attack(
        "writes outside through a link",
        'os.symlink(scene["outside"], "out")\nopen("out/written", "w").close()',
        _wrote_outside,
    ),
    Attack(
        "moves the folder of another task away",
        'os.rename(scene["other"], scene["other"] + "-gone")\nescaped()',
    ),
    _wrote_to("/tmp"),
    _wrote_to("/var/tmp"),
    _wrote_to("/dev/shm"),
    Attack("can change the system", 'escaped(os.access("/usr/bin", os.W_OK))'),
    Attack(
        "opens a setting of the kernel for writing",
        'os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)\nescaped()',
    ),
    Attack("gives its file to root", 'open("f", "w").close()\nos.chown("f", 0, 0)\nescaped()'),
]
