/*
 * Monitors of an interface's host rings see frames that a program sends to the stack, and frames that the stack sends; monitors of the
 * interface's own rings see neither. Usage: monitor_host INTERFACE
 */
#include "common.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#define COUNT 50u

static struct netmap_ring *
host_rx(struct port *p)
{
	return NETMAP_RXRING(p->nifp, p->nifp->ni_rx_rings);
}

static void
expect(struct port *m, uint32_t count, int sent)
{
	struct netmap_ring *r = host_rx(m);
	uint32_t i, got = 0;

	while (got < count) {
		CHECK(poll_for(m->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, count);
		for (i = r->head; i != r->tail; i = nm_ring_next(r, i))
			CHECK(!(r->slot[i].flags & NS_TXMON) == !sent, "flags 0x%x", r->slot[i].flags);
		take_frames(r, &got);
	}
	CHECK(got == count && poll_for(m->fd, POLLIN, 5) == 0, "no more than %u", count);
}

/* The stack sends. */
static void
from_stack(const char *name)
{
	int s = socket(AF_PACKET, SOCK_RAW, 0);
	struct sockaddr_ll to = { .sll_family = AF_PACKET };
	char frame[FRAME];
	uint32_t i;

	CHECK(s >= 0, "packet socket");
	to.sll_ifindex = (int)if_nametoindex(name);
	for (i = 0; i < COUNT; i++) {
		fill(frame, FRAME, i);
		CHECK(sendto(s, frame, FRAME, 0, (struct sockaddr *)&to, sizeof(to)) == FRAME, "send");
	}
	close(s);
}

int
main(int argc, char **argv)
{
	struct port port, sent, received, both, wire;
	uint32_t seq = 0, got = 0;

	CHECK(argc == 2, "an interface");
	alarm(30);
	port = open_port_as(argv[1], NR_REG_NIC_SW, 0);
	sent = open_port_as(argv[1], NR_REG_SW, NR_MONITOR_TX);
	received = open_port_as(argv[1], NR_REG_ONE_SW, NR_MONITOR_RX);
	both = open_port_as(argv[1], NR_REG_NIC_SW, NR_MONITOR_RX | NR_MONITOR_TX);
	wire = open_port_as(argv[1], NR_REG_ALL_NIC, NR_ZCOPY_MON);
	CHECK(both.nifp->ring_ofs[0] != 0 && both.nifp->ring_ofs[1] != 0, "tx rings of both kinds");
	CHECK(sent.nifp->ring_ofs[0] == 0 && sent.nifp->ring_ofs[1] != 0, "the host tx ring alone");
	put_frames(NETMAP_TXRING(port.nifp, port.nifp->ni_tx_rings), &seq, COUNT);
	CHECK(ioctl(port.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	expect(&sent, COUNT, 1);
	expect(&both, COUNT, 1);
	from_stack(argv[1]);
	while (got < COUNT) {
		CHECK(poll_for(port.fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, COUNT);
		take_frames(host_rx(&port), &got);
	}
	expect(&received, COUNT, 0);
	expect(&both, COUNT, 0);
	CHECK(poll_for(sent.fd, POLLIN, 5) == 0 && poll_for(wire.fd, POLLIN, 5) == 0, "nothing else");
	close_port(&port);
	CHECK(poll_for(both.fd, POLLIN, 5000) == POLLERR, "the interface is closed");
	close_port(&sent);
	close_port(&received);
	close_port(&both);
	close_port(&wire);
	return 0;
}
