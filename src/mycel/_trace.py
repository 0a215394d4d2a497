import os, time, atexit, sys
_on = os.environ.get("MYCEL_TRACE")
marks = []
def mark(label):
    if _on:
        marks.append((time.monotonic_ns(), label))
        if len(marks) >= 4000: flush()
def flush():
    if marks:
        with open(f"{_on}/{os.getpid()}", "a") as f:
            f.writelines(f"{t} {l}\n" for t, l in marks)
        marks.clear()
if _on: atexit.register(flush)
