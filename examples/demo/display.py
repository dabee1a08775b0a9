"""What the demo shows: lines, with colour and a live last line on a terminal."""


def count(number):
    """A number as people read it; a dash for one that is not known."""
    return "-" if number is None else f"{number:,}"


class Display:
    def __init__(self, stream):
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.is_live = False  # the last line is a progress that will be overwritten
        self.rows = 0
        self.previous = (0.0, 0)  # time and count of the last progress
        self.rate = 0

    def say(self, text=""):
        self.end_live_line()
        self.stream.write(text + "\n")
        self.stream.flush()

    def end_live_line(self):
        if self.is_live:
            self.stream.write("\n")
            self.is_live = False

    def note(self, text):
        """Something remarkable happened meanwhile."""
        self.say(self.coloured("33", f"         {text}"))

    def failure(self, reason, words):
        """The last line says what failed; above it the end of the log that tells more."""
        self.say(f"\n{words}")
        self.say(self.coloured("31", f"FAILED: {str(reason).strip()}; the lines above are the end of the log"))

    def header(self):
        self.say(self.coloured("1", f"{'time':>7} {'handled':>10} {'sent':>10} {'pending':>10} {'rate':>10}"))

    def progress(self, seconds, handled, sent, pending, last=False):
        """A row of progress; on a terminal it stays where it is for five turns."""
        since, before = self.previous
        if seconds > since + 1:  # less is too short to tell
            self.rate = round((handled - before) / (seconds - since))
            self.previous = (seconds, handled)
        row = f"{seconds:>5.0f} s {count(handled):>10} {count(sent):>10} {count(pending):>10} {count(self.rate):>8}/s"
        self.rows += 1
        if not self.is_terminal:
            self.say(row)
            return
        self.stream.write("\r" + row + "\033[K")
        self.stream.flush()
        self.is_live = True
        if last or self.rows % 5 == 0:
            self.end_live_line()

    def fact(self, name, value):
        self.say(f"  {name:<24} {value}")

    def result(self, result):
        for name, value in result.facts():
            self.fact(name, count(value))

    def verdict(self, result):
        if result.agrees:
            self.say(self.coloured("1;32", f"\n  {result.verdict()}: the books agree\n"))
        else:
            self.say("\n".join(["", *result.details()]))
            self.say(self.coloured("1;31", f"\n  {result.verdict()}: THE BOOKS DO NOT AGREE\n"))

    def coloured(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.is_terminal else text
