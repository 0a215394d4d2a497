"""Attempts to take more than a task was given: memory, processes, disk, time."""

from __future__ import annotations

from .attack import Attack

_FLOOD = """
children = []
for _ in range(150):
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    children.append(child)
escaped()
for child in children:
    os.kill(child, 9)
"""

ATTACKS = [
    Attack("floods the machine with processes", _FLOOD),
    Attack(
        "floods the machine with threads",
        "import threading\n"
        "end = threading.Event()\n"
        "for _ in range(150):\n"
        "    threading.Thread(target=end.wait, daemon=True).start()\n"
        "escaped()\n"
        "end.set()",
    ),
    Attack("takes much memory", 'taken = b"x" * (300 << 20)\nescaped()'),
    Attack(
        "takes much memory in many processes",
        "children = []\n"
        "for _ in range(6):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        '        taken = b"x" * (50 << 20)\n'
        "        os._exit(0 if time.sleep(0.5) is None else 1)\n"
        "    children.append(child)\n"
        "escaped(all(os.waitpid(child, 0)[1] == 0 for child in children))",
    ),
    Attack(
        "takes much memory as a file",
        'descriptor = os.memfd_create("x")\n'
        "for place in range(15):\n"
        '    os.pwrite(descriptor, b"x" * (20 << 20), place * (20 << 20))\n'
        "escaped()",
    ),
    Attack(
        "fills the shared memory",
        "names = [f\"/dev/shm/mycel-attack-{scene['mark']}-{number}\" for number in range(15)]\n"
        "try:\n"
        "    for name in names:\n"
        '        open(name, "wb").write(b"x" * (20 << 20))\n'
        "    escaped()\n"
        "finally:\n"
        "    for name in filter(os.path.exists, names):\n"
        "        os.unlink(name)",
    ),
    Attack(
        "fills the disk",
        "for number in range(5):\n"
        '    with open(f"file-{number}", "wb") as out:\n'
        '        out.write(b"x" * (16 << 20))\n'
        "time.sleep(1.5)\n"
        "escaped()",
    ),
    Attack(
        "writes a huge file",
        'with open("huge", "wb") as out:\n'
        "    for _ in range(3):\n"
        '        out.write(b"x" * (10 << 20))\n'
        "escaped()",
    ),
    Attack(
        "makes a file look huge",
        'with open("huge", "wb") as out:\n    out.truncate(1 << 40)\nescaped()',
    ),
    Attack(
        "lifts its limits",
        "import resource\n"
        "most = resource.RLIM_INFINITY\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "escaped()",
    ),
]
