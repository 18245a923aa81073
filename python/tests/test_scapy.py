"""scapy's functions on a port."""

import unittest

from daemon import LIMIT, WithDaemon

try:
    from scapy.all import ARP, AsyncSniffer, Ether, conf, sendp, sniff, srp1

    from netvale.scapy import NetvaleSocket
except ImportError:
    raise unittest.SkipTest("skipped: scapy is not installed") from None


class Scapy(WithDaemon):
    def test_send_and_sniff(self):
        """Objective: scapy sends and sniffs through sockets on ports."""
        with NetvaleSocket("vale0:one") as one, NetvaleSocket("vale0:two") as two:
            frames = [Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01") / ARP(pdst=f"10.1.0.{k}") for k in range(1, 6)]
            sendp(frames, socket=one, verbose=False)
            got = sniff(opened_socket=two, count=5, timeout=LIMIT)
            self.assertEqual([p[ARP].pdst for p in got], [f"10.1.0.{k}" for k in range(1, 6)])

    def test_question_and_answer(self):
        """Objective: srp1 gets its answer on a port named as an interface."""
        with NetvaleSocket("vale1:host") as host:

            def answer(packet):
                if ARP in packet and packet[ARP].op == 1:
                    host.send(Ether(dst=packet.src, src="02:00:00:00:00:09") / ARP(op=2, hwsrc="02:00:00:00:00:09", psrc=packet.pdst, pdst=packet.psrc))

            sniffer = AsyncSniffer(opened_socket=host, prn=answer, store=False)
            sniffer.start()
            before = conf.L2socket
            conf.L2socket = NetvaleSocket
            try:
                question = Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01") / ARP(hwsrc="02:00:00:00:00:01", psrc="10.1.0.1", pdst="10.1.0.9")
                got = srp1(question, iface="vale1:asker", timeout=LIMIT, verbose=False)
            finally:
                conf.L2socket = before
                sniffer.stop()
            self.assertEqual(got[ARP].hwsrc, "02:00:00:00:00:09")

    def test_filters(self):
        """Objective: a filter, which a port does not have, is refused."""
        from scapy.error import Scapy_Exception

        self.assertRaises(Scapy_Exception, NetvaleSocket, "vale2:x", filter="arp")
