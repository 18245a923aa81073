/* Bridges an interface and its host stack like netmap's own bridge, by swapping buffers.
 * Usage: host_bridge INTERFACE            until it is ended
 *        host_bridge attach|detach SWITCH:INTERFACE   as vale-ctl -h, -d */
#include "common.h"
#include <libnetmap.h>
#include <poll.h>

/* Moves the available frames from one port's rings to the other's. */
static void
move(struct nmport_d *from, struct nmport_d *to)
{
	struct netmap_ring *rx = NETMAP_RXRING(from->nifp, from->first_rx_ring);
	struct netmap_ring *tx = NETMAP_TXRING(to->nifp, to->first_tx_ring);

	swap_all(rx, tx);
}

static int
bridge(const char *interface)
{
	char name[64];
	struct nmport_d *nic, *host;

	snprintf(name, sizeof(name), "netmap:%s", interface);
	CHECK((nic = nmport_open(name)) != NULL, "open %s", name);
	strcat(name, "^");
	CHECK((host = nmport_open(name)) != NULL, "open %s", name);
	CHECK(nic->reg.nr_host_rx_rings == 1 && host->nifp->ni_host_rx_rings == 1, "host rings are counted");
	CHECK(host->first_rx_ring == host->reg.nr_rx_rings, "the host ring is behind the others");
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		struct pollfd fds[2] = { { .fd = nic->fd, .events = POLLIN }, { .fd = host->fd, .events = POLLIN } };

		CHECK(poll(fds, 2, 1000) >= 0, "poll");
		move(nic, host);
		move(host, nic);
		CHECK(ioctl(nic->fd, NIOCTXSYNC, NULL) == 0 && ioctl(host->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	}
}

int
main(int argc, char **argv)
{
	struct nmreq_vale_attach a = { 0 };
	struct nmreq_vale_detach d = { 0 };
	int fd;

	if (argc == 2)
		return bridge(argv[1]);
	fd = device();
	a.reg.nr_mode = NR_REG_NIC_SW;
	if (strcmp(argv[1], "attach") == 0)
		CHECK(request(fd, argv[2], NETMAP_REQ_VALE_ATTACH, &a) == 0, "attach");
	else
		CHECK(request(fd, argv[2], NETMAP_REQ_VALE_DETACH, &d) == 0, "detach");
	close(fd);
	return 0;
}
