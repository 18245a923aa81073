"""Parts of vde_switch.sh: vde_switch.py PART PROGRAM FOLDER [JUDGE]"""

import os
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

from vde_lib import (
    ALL, LIMIT, Console, Plug, Plugs, Switch, address, end_process, frame, is_gone, listens, raw_plug, until,
)


def nixos(program, folder):
    """As the test driver does: options, a command on standard input, its answer within 5 s, and then the socket."""
    ctl = os.path.join(folder, "vde1.ctl")
    process = subprocess.Popen(
        [program, "--sock", ctl, "--dirmode", "0700", "--hub"],
        bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    process.stdin.write("showinfo\n")
    process.stdin.flush()
    # A reader that waits for more than it has read already would wait for ever.
    os.set_blocking(process.stdout.fileno(), False)
    lines = []
    while not lines or "1000 Success" not in lines[-1]:
        assert select.select([process.stdout], [], [], 5)[0], lines
        while line := process.stdout.readline():
            lines.append(line)
    assert lines[0] == "0000 DATA END WITH '.'\n" and ".\n" in lines, lines
    assert os.path.exists(os.path.join(ctl, "ctl"))
    assert stat.S_IMODE(os.stat(ctl).st_mode) == 0o700
    plug = Plug(ctl)
    plug.send(frame(ALL, address(1)))
    process.stdin.close()
    process.terminate()
    assert process.wait(LIMIT) in (0, -signal.SIGTERM)
    until("nothing is left", lambda: not os.path.exists(ctl))
    plug.end()
    # Its end alone ends it, too.
    process = subprocess.Popen([program, "-sock", ctl, "-hub"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    until("it is ready", lambda: os.path.exists(os.path.join(ctl, "ctl")))
    process.stdin.close()
    assert process.wait(LIMIT) == 0
    assert not os.path.exists(ctl)


def autoinst(program, folder):
    """Each command by a connection of its own, as vdecmd makes it: a port that may not exist is removed, and made."""
    with Switch(program, folder, "--nostdin") as switch:
        vdecmd = ["unixcmd", "-s", switch.mgmt, "-f", "/etc/vde2/vdecmd"]
        for command in ("port/remove 10", "port/create 10", "vlan/create 42", "port/setvlan 10 42"):
            subprocess.run([*vdecmd, *command.split()], stdout=subprocess.DEVNULL, check=False, timeout=LIMIT)
        console = switch.console()
        assert "Port 0010 untagged_vlan=0042 INACTIVE" in console.ask("port/allprint 10")
        plugs = Plugs(switch, console, [10])
        assert "Port 0010 untagged_vlan=0042 ACTIVE" in console.ask("port/print 10")
        plugs.end()
        console.socket.sendall(b"shutdown\n")
        assert console.read() == b"9999 END OF SESSION"
        assert switch.process.wait(LIMIT) == 0
        assert not os.path.exists(switch.folder) and not os.path.exists(switch.mgmt)


def background(program, folder):
    """The starter ends once all is ready; nothing of it holds the starter's files open."""
    ctl, mgmt, pidfile = (os.path.join(folder, name) for name in ("ctl", "mgmt", "pid"))
    os.chdir(folder)
    said = subprocess.run(
        [program, "-s", "ctl", "-M", "mgmt", "-daemon", "-p", "pid"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=True,
    )
    assert said.stdout == b"" and said.stderr == b"", said
    assert os.path.exists(os.path.join(ctl, "ctl"))
    with open(pidfile, encoding="ascii") as file:
        pid = int(file.read())
    console = Console(mgmt)
    assert f"pid {pid} " in console.ask("showinfo") and f"ctl dir {ctl}\n" in console.ask("ds/showinfo")
    end_process(pid)
    until("nothing is left", lambda: not os.listdir(folder))
    # A start that fails says why, and ends with an error.
    os.mkdir(ctl)
    with open(os.path.join(ctl, "ctl"), "w", encoding="ascii") as file:
        file.write("x")
    said = subprocess.run([program, "-s", "ctl", "-d"], capture_output=True, timeout=LIMIT, check=False)
    assert said.returncode == 255 and b"is not a socket" in said.stderr, said
    os.remove(os.path.join(ctl, "ctl"))
    os.rmdir(ctl)


def frames(program, folder):
    """Short, long and tagged frames: on a hub at all others, on a switch where the address is."""
    for options in (["--hub"], []):
        with Switch(program, folder, *options) as switch:
            console = switch.console()
            plugs = Plugs(switch, console, [1, 2, 3])
            for length in (60, 1514, 8000, 9230):
                sent = frame(ALL, address(1), length)
                assert plugs.reached(1, sent) == {2: sent, 3: sent}, (options, length)
            # From here on, a switch knows where 1 is.
            sent = frame(address(1), address(2), 8000)
            assert plugs.reached(2, sent) == ({1: sent, 3: sent} if options else {1: sent}), options
            tagged = frame(ALL, address(1), 8000, vlan=7)
            assert plugs.reached(1, tagged) == ({2: tagged, 3: tagged} if options else {}), options
            assert f"HUB={str(bool(options)).lower()}\n" in console.ask("port/showinfo")
            table = console.ask("hash/print")
            assert ("Addr: 02:00:00:00:00:01 VLAN 0000 to port: 001" in table) == (not options), table
            counts = console.ask("port/print 1")
            assert " IN:  pkts          5 " in counts, counts
            console.does("port/resetcounter 1")
            assert " IN:  pkts          0          bytes                    0\n" in console.ask("port/print 1")
            # A hub becomes a switch, and a switch a hub, while plugs are there.
            console.does("port/sethub 0" if options else "port/sethub 1")
            tagged = frame(ALL, address(3), 200, vlan=9)
            assert plugs.reached(3, tagged) == ({} if options else {1: tagged, 2: tagged}), options
            plugs.end()


# Ports, and the VLANs that they have.
VLANS = """vlan/create 10
vlan/create 20
vlan/create 30
port/create 1
port/create 2
port/create 3
port/create 4
port/create 5
port/create 6
port/setvlan 1 10
port/setvlan 2 10
port/setvlan 3 20
vlan/addport 10 4
vlan/addport 20 4
port/setvlan 5 4095
vlan/addport 10 5
vlan/addport 30 6
vlan/delport 30 6
vlan/addport 20 6
vlan/delport 20 6"""


def tags(program, folder, judge):
    """Which frame arrives where, and with which tag, at our switch and at the judge."""
    found = []
    for number, name in enumerate((program, judge)):
        place = os.path.join(folder, str(number))
        os.mkdir(place)
        with Switch(name, place) as switch:
            console = switch.console()
            console.does(*VLANS.splitlines())
            plugs = Plugs(switch, console, [1, 2, 3, 4, 5, 6])
            reached = {}
            for port in range(1, 7):
                for vlan in (None, 10, 20, 30, 40):
                    sent = frame(ALL, address(port), 90, vlan=vlan, mark=port)
                    reached[port, vlan] = plugs.reached(port, sent, quiet=0.15)
            found.append(reached)
            plugs.end()
        os.rmdir(place)
    for case, ours in found[0].items():
        assert ours == found[1][case], (case, "ours", ours, "judge", found[1][case])
    assert found[0][1, None] and found[0][4, 20], "frames pass at all"


# What users type, right and wrong, in any order. What is only ours is left out.
ASKED = """vlan/create 10|vlan/create 10|vlan/create 0|vlan/create 4094|vlan/create 4095|vlan/create 4096|vlan/create -1
vlan/create x|vlan/create|vlan/create 12abc|vlan/remove 11|vlan/remove 12|vlan/remove 4095|vlan/addport 10 3
port/create 3|port/create 3|port/create 32|port/create 33|port/create 31|port/create -1|port/remove 31|port/create 1 2
vlan/addport 10 3|vlan/addport 10 3|vlan/addport 11 3|vlan/addport 10|vlan/addport|vlan/addport 10 99|vlan/addport 4095 1
vlan/print|vlan/allprint|vlan/allprint 10|vlan/print 77|vlan/print 4096|vlan/print -1|vlan/delport 10 3|vlan/delport 10 3
vlan/delport 10 5|vlan/delport 10 99|port/setvlan 3 10|port/setvlan 3 11|port/setvlan 5 10|port/setvlan 3|port/setvlan
port/setvlan 40 10|port/setvlan 0 0|port/setvlan -1 0|port/setvlan 3 -1|port/setvlan 3 4096|vlan/print 10|vlan/allprint 10
vlan/remove 10|vlan/remove 0|vlan/delport 10 3|port/print 3|port/allprint 3|port/allprint|port/print 5|port/print x|port/print 99
port/remove 5|port/remove 99|port/remove x|port/allocatable 3 1|port/allprint 3|port/allocatable 3 0|port/allocatable 5 1
port/allocatable 99 1|port/allocatable 3|port/remove 3|port/remove 3|vlan/remove 10|vlan/remove 10|port/createauto
port/createauto|port/sethub 1|port/showinfo|port/sethub 0|port/showinfo|port/setnumports 16|port/showinfo|port/setnumports 0
port/setnumports x|port/setnumports 2|port/setnumports 32|port/epclose 1 1|port/epclose 1|port/epclose 99 1|port/resetcounter 1
port/resetcounter|port/resetcounter 99|port/setuser 1|port/setuser 5 root|port/setuser 1 nosuchuser|port/setgroup 1 nosuch
port/setuser 1 NONE|hash/showinfo|hash/setsize 256|hash/setsize 100|hash/setsize 0|hash/setexpire 10|hash/setminper 1
hash/setgcint 1|hash/showinfo|hash/print|hash/find 00:11:22:33:44:55|hash/find x|fstp/setfstp 0|fstp/print 99|fstp/bonus
fstp/setedge 1|plugin/list|plugin/add x|plugin/del x|load /nonexistent|load|nosuch|port|vlan|show|SHOWINFO|hash
  vlan/print|vlan/print 0|port/setvlan 1  0|port/setvlan 1	0||# a comment|ds/showinfo|fstp/showinfo|port/setvlan 1 4095
port/allprint 1|vlan/allprint|port/setvlan 1 0"""


def answers(program, folder, judge):
    """Every answer, byte for byte, but for what names the program or its process."""
    found = []
    for number, name in enumerate((program, judge)):
        place = os.path.join(folder, str(number))
        os.mkdir(place)
        with Switch(name, place) as switch:
            console = switch.console()
            assert console.banner.startswith(b"VDE switch V.2.3.2\n"), console.banner
            lines = [line for row in ASKED.splitlines() for line in row.split("|")]
            answer = lambda line: re.sub(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC", console.ask(line).replace(place, ""))
            found.append([(line, answer(line)) for line in lines])
            # By standard input, the same without a prompt.
            switch.process.stdin.write(b"vlan/print\n")
            said = b""
            while not said.endswith(b"Success\n"):
                said += os.read(switch.process.stdout.fileno(), 4096)
            assert said == b"0000 DATA END WITH '.'\nVLAN 0000\n.\n1000 Success\n", said
            console.socket.sendall(b"logout\n")
            assert console.read() == b"9999 END OF SESSION"
        os.rmdir(place)
    wrong = [(ours, theirs) for ours, theirs in zip(*found) if ours != theirs]
    assert not wrong, "\n".join(f"{ours} but {theirs[1]!r}" for ours, theirs in wrong)
    assert len(found[0]) > 130, len(found[0])


def ports(program, folder):
    """Reserved ports are for plugs that ask for them; a VLAN outlives its plug; how many there may be holds for plugs."""
    with Switch(program, folder, "-n", "5") as switch:
        console = switch.console()
        console.does("vlan/create 10", "port/create 2", "port/setvlan 2 10", "port/create 3", "port/setvlan 3 10")
        first = Plug(switch.folder)
        until("a plug has the first port that is for any", lambda: "Port 0001 " in console.ask("port/print"))
        plugs = Plugs(switch, console, [2, 3])
        sent = frame(ALL, address(2))
        assert plugs.reached(2, sent) == {3: sent}
        plugs[2].end()
        until("port 2 has no plug", lambda: "INACTIVE" in console.ask("port/allprint 2"))
        assert "untagged_vlan=0010 INACTIVE - NOT Unnamed Allocatable" in console.ask("port/allprint 2")
        again = Plugs(switch, console, [2])
        again[2].send(sent)
        assert plugs[3].receive() == sent and first.receive(0.2) is None
        # A plug is disconnected by its number; its port stays.
        number = re.search(r"endpoint ID (\d+)", console.ask("port/print 3"))[1]
        assert console.ask("port/remove 3") == "1098 Address already in use\n"
        console.does(f"port/epclose 3 {number}")
        until("its plug is told", lambda: plugs[3].process.poll() is not None)
        assert "untagged_vlan=0010 INACTIVE - NOT Unnamed" in console.ask("port/allprint 3")
        console.does("port/allocatable 3 1")
        third = Plug(switch.folder)
        until("any plug has port 3", lambda: "Port 0003 untagged_vlan=0010 ACTIVE" in console.ask("port/print"))
        fourth = Plug(switch.folder)
        until("a plug has port 4", lambda: "Port 0004 " in console.ask("port/print"))
        fifth = Plug(switch.folder)
        assert fifth.process.wait(LIMIT) != 0
        console.does("port/setnumports 6")
        sixth = Plug(switch.folder)
        until("there is one more", lambda: "Port 0005 " in console.ask("port/print"))
        for plug in (first, third, fourth, fifth, sixth, plugs[3], again[2]):
            plug.end()
        # Commands of a file, one of which loads another one.
        with open(os.path.join(folder, "rc"), "w", encoding="ascii") as file:
            file.write(f"vlan/create 55\n\n# x\nnosuch\nload {folder}/rc\n")
        said = console.ask(f"load {folder}/rc")
        assert said.endswith("1000 Success\n") and "1040 Too many levels" in said and "1038 " in said, said
        assert "VLAN 0055\n" in console.ask("vlan/print")
    with Switch(program, folder, "--rcfile", os.path.join(folder, "rc")) as switch:
        assert "VLAN 0055\n" in switch.console().ask("vlan/print")
    os.remove(os.path.join(folder, "rc"))


def modes(program, folder, judge):
    """The bits of folder and sockets, as the judge sets them."""
    cases = [[], ["--mode", "0660"], ["-m", "0777"], ["-mod", "666"], ["--dirmode", "0700"],
             ["-m", "0777", "--dirmode", "0755"], ["--mgmtmode", "0660"], ["-g", str(os.getgid())]]
    for options in cases[:-1]:
        found = []
        for name in (program, judge):
            with Switch(name, folder, *options) as switch:
                places = (switch.folder, os.path.join(switch.folder, "ctl"), switch.mgmt)
                found.append([stat.S_IMODE(os.stat(place).st_mode) for place in places])
        assert found[0] == found[1], (options, [[oct(mode) for mode in modes] for modes in found])
    with Switch(program, folder, "-m", "0660", *cases[-1]) as switch:
        assert os.stat(switch.folder).st_gid == os.getgid()


def sessions(program, folder):
    """Commands in any pieces, and peers that do not read, say nothing, or say too much."""
    with Switch(program, folder) as switch:
        console = switch.console()
        console.socket.sendall(b"".join(b"vlan/create %d\n" % vlan for vlan in range(1, 501)))
        for vlan in range(1, 501):
            assert console.read() == b"1000 Success\n", vlan
        for byte in b"vlan/create 600\n":
            console.socket.send(bytes([byte]))
        assert console.read() == b"1000 Success\n"
        assert console.ask("vlan/print").count("VLAN ") == 502
        # Standard input runs each, too; the last one without a line's end.
        switch.process.stdin.write(b"vlan/create 701\nvlan/create 702\nvlan/create 703")
        said = b""
        while said.count(b"1000 Success\n") < 2:
            said += os.read(switch.process.stdout.fileno(), 4096)
        assert "VLAN 0702\n" in console.ask("vlan/print 702")
        # Who does not read is not heard, and hinders nobody.
        deaf = Console(switch.mgmt)
        deaf.socket.setblocking(False)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            try:
                deaf.socket.send(b"help\n" * 1000)
            except BlockingIOError:
                time.sleep(0.01)
        assert "VLAN 0010\n" in console.ask("vlan/print 10")
        rude = Console(switch.mgmt)
        rude.socket.sendall(b"x" * 1_000_000)
        rude.socket.sendall(b"\nvlan/print 10\n")
        assert rude.read() == b"1038 Function not implemented\n"
        assert b"VLAN 0010\n" in rude.read()
        silent = [socket.socket(socket.AF_UNIX) for _ in range(80)]
        for one in silent:
            one.connect(switch.mgmt)
        assert "VLAN 0010\n" in console.ask("vlan/print 10")
        for one in silent:
            one.close()
        for bad in (b"\0\n", b"\xff\xfe\n", b"\r\n", b"vlan/print 10\r\n", b"port/create 99999999999999999999\n"):
            console.socket.sendall(bad)
            console.read()
        assert "VLAN 0010\n" in console.ask("vlan/print 10")
        half = Console(switch.mgmt)
        half.socket.sendall(b"vlan/create 800")
        half.socket.shutdown(socket.SHUT_WR)
        assert half.read() == b"1000 Success\n" and half.read() == b""
        deaf.close()


def passes(folder):
    """Whether frames pass between two new plugs."""
    plugs = [Plug(folder), Plug(folder)]
    sent = frame(ALL, address(1))
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        plugs[0].send(sent)
        if plugs[1].receive(0.2) == sent:
            break
    else:
        raise AssertionError("no frame passes")
    for plug in plugs:
        plug.end()


def killed(program, folder):
    """A killed console takes its daemon along; the next one is there immediately. So it is after a kill of both, and beside
    a live switch."""
    other = os.path.join(folder, "other")
    os.mkdir(other)
    with Switch(program, other) as live:
        for both in (False, True, False, True):
            switch = Switch(program, folder)
            daemon = switch.daemon_of()
            passes(switch.folder)
            os.kill(switch.process.pid, signal.SIGSTOP if both else signal.SIGKILL)
            if both:
                # Neither has time to clean up.
                os.kill(daemon, signal.SIGKILL)
                os.kill(switch.process.pid, signal.SIGKILL)
            switch.process.wait(LIMIT)
            with Switch(program, folder) as again:
                until("the daemon has ended", lambda daemon=daemon: is_gone(daemon))
                passes(again.folder)
                assert "1000 Success" in again.console().ask("showinfo")
        passes(live.folder)
    os.rmdir(other)
    # The daemon alone: the console says so, and ends.
    switch = Switch(program, folder)
    os.kill(switch.daemon_of(), signal.SIGKILL)
    assert switch.process.wait(LIMIT) == 255
    assert b"has ended" in switch.process.stderr.read()
    with Switch(program, folder) as again:
        passes(again.folder)


def twice(program, folder):
    """Of several that start together, one has the place; the others say why they have not, and leave it alone."""
    for _ in range(3):
        all_of = [Switch(program, folder, ready=False) for _ in range(4)]
        until("all but one have ended", lambda: sum(one.process.poll() is None for one in all_of) == 1, 40)
        for one in all_of:
            if one.process.poll() is None:
                winner = one
            else:
                said = one.process.stderr.read()
                assert one.process.returncode == 255 and (b"already" in said or b"listens" in said), said
        until("it is ready", lambda: listens(winner.mgmt))
        passes(winner.folder)
        # A later one changes nothing.
        late = Switch(program, folder, ready=False)
        assert late.process.wait(LIMIT) == 255, late.process.stderr.read()
        passes(winner.folder)
        winner.end()


def refused(program, *options):
    said = subprocess.run(
        [program, *options], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False
    )
    assert said.returncode != 0, (options, said)
    return said.stderr.decode()


def way(program, folder):
    """What is in the way and no leftover stays as it is."""
    place = os.path.join(folder, "file")
    with open(place, "w", encoding="ascii") as file:
        file.write("x")
    assert "is not a folder" in refused(program, "--sock", place)
    mgmt = refused(program, "--sock", os.path.join(folder, "ctl"), "--mgmt", place)
    assert "is not a socket" in mgmt, mgmt
    assert "cannot create" in refused(program, "--sock", os.path.join(folder, "no/where"))
    assert "group nosuch does not exist" in refused(program, "--sock", os.path.join(folder, "ctl"), "--group", "nosuch")
    with open(place, encoding="ascii") as file:
        assert file.read() == "x"
    os.remove(place)
    os.mkdir(place)
    with open(os.path.join(place, "ctl"), "w", encoding="ascii") as file:
        file.write("x")
    assert "is not a socket" in refused(program, "--sock", place)
    with open(os.path.join(place, "ctl"), encoding="ascii") as file:
        assert file.read() == "x"
    os.remove(os.path.join(place, "ctl"))
    os.rmdir(place)
    assert os.listdir(folder) == []
    for length in range(90, 121):
        place = os.path.join(folder, "x" * (length - len(folder) - 1))
        assert len(place) == length
        if length <= 99:
            with subprocess.Popen([program, "--sock", place], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
                until("it is ready", lambda place=place: os.path.exists(os.path.join(place, "ctl")))
                passes(place)
                process.stdin.close()
                assert process.wait(LIMIT) == 0
        else:
            assert "at most" in (said := refused(program, "--sock", place)), (length, said)
        assert os.listdir(folder) == [], length
    for words in (["--nosuch"], ["extra"], ["-n", "0"], ["-m", "9"], ["-s"]):
        assert "lists the options" in refused(program, *words)


def loop(program, folder):
    """A hub with a loop: frames go round for ever, and the console answers; another switch does not notice."""
    other = os.path.join(folder, "other")
    os.mkdir(other)
    with Switch(program, folder, "--hub") as switch, Switch(program, other) as bystander:
        console = switch.console()
        target = f"vde://{switch.folder}"
        cables = [subprocess.Popen(["dpipe", "vde_plug", target, "=", "vde_plug", target]) for _ in range(2)]
        until("the loops are there", lambda: console.ask("port/print").count(" ACTIVE ") == 4)
        plug = Plug(switch.folder)
        until("a plug is there", lambda: console.ask("port/print").count(" ACTIVE ") == 5)
        sent = frame(ALL, address(1))
        plug.send(sent)
        for _ in range(1000):
            assert plug.receive() == sent
        for _ in range(20):
            begun = time.monotonic()
            assert "HUB=true" in console.ask("port/showinfo")
            assert console.ask("port/print").count(" ACTIVE ") == 5
            assert time.monotonic() - begun < 2, time.monotonic() - begun
        passes(bystander.folder)
        for cable in cables:
            cable.terminate()
            cable.wait()
        until("the loops are gone", lambda: console.ask("port/print").count(" ACTIVE ") == 1)
        plug.end()
    os.rmdir(other)


def versions(program, folder):
    """Requests of every version and type, cut and garbled ones; plugs of version 3 go on."""
    with Switch(program, folder) as switch:
        console = switch.console()
        own = os.path.join(folder, "own")
        data = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        data.bind(own)
        for version in (0, 1, 2, 4, 5, 0xFFFFFFFF):
            assert raw_plug(switch.folder, own, version=version) == (None, None), version
        for words in ({"magic": 0xFEEDBEEF}, {"kind": 2}, {"kind": 255}, {"port": 0x10000}):
            assert raw_plug(switch.folder, own, **words) == (None, None), words
        assert raw_plug(switch.folder, os.path.join(folder, "nobody")) == (None, None)
        # A request of version 1, as it was: an Ethernet address, and no path.
        old = socket.socket(socket.AF_UNIX)
        old.connect(os.path.join(switch.folder, "ctl"))
        old.sendall(struct.pack("=II6s", 0xFEEDFACE, 1, bytes(6)) + bytes(100))
        old.settimeout(LIMIT)
        try:
            assert old.recv(1) == b""
        except ConnectionResetError:
            pass
        for length in (1, 11, 121):
            cut = socket.socket(socket.AF_UNIX)
            cut.connect(os.path.join(switch.folder, "ctl"))
            cut.sendall(struct.pack("=III", 0xFEEDFACE, 3, 0).ljust(122, b"\0")[:length])
            cut.close()
        for kind in (0, 1):
            control, path = raw_plug(switch.folder, own, kind=kind, port=7 if kind == 0 else 0)
            assert path.startswith(switch.folder + "/0"), path
            control.close()
            until("its port is free", lambda: " ACTIVE " not in console.ask("port/print"))
        passes(switch.folder)
        data.close()
        os.remove(own)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
