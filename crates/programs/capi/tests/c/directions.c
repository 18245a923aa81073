/* Each ring of an interface may be bound to another descriptor: a queue's two directions, in either order, in one process or
 * two, and also host rings. A ring that is already bound is refused.
 * Usage: directions NEAR FAR, the ends of a cable. */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>

#define COUNT 2000u
#define TIMES 60u

static const char *near_end;

static struct port
open_way(uint32_t mode, uint64_t way)
{
	return open_port_as(near_end, mode, way);
}

static int
refused(uint32_t mode, uint64_t flags)
{
	struct nmreq_register reg = { .nr_mode = mode, .nr_flags = flags };
	int fd;

	fd = reg_with(near_end, &reg, NULL);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

/* Frames of the far end arrive on `in`, leave on `out` in the same buffers, and return to the far end. */
static void
there_and_back(struct port *far, struct port *in, struct port *out, uint32_t count)
{
	struct netmap_ring *rx = NETMAP_RXRING(in->nifp, 0), *tx = NETMAP_TXRING(out->nifp, 0);
	uint32_t sent = 0, got = 0, window = 100;

	while (got < count) {
		put_frames(NETMAP_TXRING(far->nifp, 0), &sent, got + window < count ? got + window : count);
		CHECK(ioctl(far->fd, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(poll_for(in->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came in", got, count);
		swap_all(rx, tx);
		CHECK(ioctl(out->fd, NIOCTXSYNC, NULL) == 0 && ioctl(in->fd, NIOCRXSYNC, NULL) == 0, "sync");
		CHECK(poll_for(far->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came back", got, count);
		take_frames(NETMAP_RXRING(far->nifp, 0), &got);
	}
	CHECK(ioctl(far->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void
refusals(void)
{
	CHECK(refused(NR_REG_ALL_NIC, NR_RX_RINGS_ONLY) == EBUSY, "the rx ring is taken");
	CHECK(refused(NR_REG_ALL_NIC, NR_TX_RINGS_ONLY) == EBUSY, "the tx ring is taken");
	CHECK(refused(NR_REG_ALL_NIC, NR_EXCLUSIVE) == EBUSY, "exclusively");
	CHECK(refused(NR_REG_NIC_SW, 0) == EBUSY, "with host rings");
}

/* One after the other, in either order; the first to close is opened again, many times, which uses up nothing. */
static void
in_one_process(struct port *far)
{
	struct port r = open_way(NR_REG_ALL_NIC, NR_RX_RINGS_ONLY), t = open_way(NR_REG_ALL_NIC, NR_TX_RINGS_ONLY);
	uint32_t i;

	CHECK(r.reg.nr_memsize == t.reg.nr_memsize && r.reg.nr_mem_id == t.reg.nr_mem_id, "one region");
	refusals();
	there_and_back(far, &r, &t, COUNT);
	for (i = 0; i < TIMES; i++) {
		uint32_t none = 0;

		/* The last frames are left unread. */
		put_frames(NETMAP_TXRING(far->nifp, 0), &none, 5);
		CHECK(ioctl(far->fd, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(poll_for(r.fd, POLLIN, 5000) & POLLIN, "five frames came in");
		close_port(&r);
		r = open_way(NR_REG_ALL_NIC, NR_RX_RINGS_ONLY);
		CHECK(nm_ring_empty(NETMAP_RXRING(r.nifp, 0)), "a new ring is empty");
		there_and_back(far, &r, &t, COUNT / TIMES);
		close_port(&t);
		t = open_way(NR_REG_ALL_NIC, NR_TX_RINGS_ONLY);
		there_and_back(far, &r, &t, COUNT / TIMES);
	}
	close_port(&r);
	close_port(&t);
	t = open_way(NR_REG_ALL_NIC, NR_TX_RINGS_ONLY | NR_EXCLUSIVE);
	r = open_way(NR_REG_ALL_NIC, NR_RX_RINGS_ONLY | NR_EXCLUSIVE);
	refusals();
	there_and_back(far, &r, &t, COUNT);
	close_port(&t);
	close_port(&r);
}

/* The child has one direction, and is killed; its successor gets an empty ring. */
static void
in_two_processes(struct port *far, uint64_t child_way, uint64_t own_way)
{
	struct port own;
	uint32_t sent = 0, got = 0, end;
	int ready[2], i, status;
	char byte;
	pid_t child;

	own = open_way(NR_REG_ALL_NIC, own_way);
	for (i = 0; i < 3; i++) {
		CHECK(pipe(ready) == 0, "pipe");
		CHECK((child = fork()) >= 0, "fork");
		if (child == 0) {
			struct port p = open_way(NR_REG_ALL_NIC, child_way);

			CHECK(write(ready[1], "r", 1) == 1, "write");
			if (child_way == NR_TX_RINGS_ONLY) {
				put_frames(NETMAP_TXRING(p.nifp, 0), &sent, COUNT);
				CHECK(ioctl(p.fd, NIOCTXSYNC, NULL) == 0, "txsync");
			}
			for (;;)
				poll_for(p.fd, child_way == NR_TX_RINGS_ONLY ? 0 : POLLIN, -1);
		}
		CHECK(read(ready[0], &byte, 1) == 1, "the child has its ring");
		if (own_way == NR_TX_RINGS_ONLY) {
			end = (sent += 7);
			got = sent - 7;
			put_frames(NETMAP_TXRING(own.nifp, 0), &got, end);
			CHECK(ioctl(own.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		}
		CHECK(poll_for(far->fd, POLLIN, 5000) & POLLIN, "frames come from one of two processes");
		NETMAP_RXRING(far->nifp, 0)->head = NETMAP_RXRING(far->nifp, 0)->cur = NETMAP_RXRING(far->nifp, 0)->tail;
		CHECK(ioctl(far->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child, "kill");
		close(ready[0]);
		close(ready[1]);
		for (end = 0; refused(NR_REG_ALL_NIC, child_way) != 0; end++) {
			CHECK(end < 500, "the dead child's ring is free");
			usleep(10000);
		}
	}
	/* Frames that were in flight. */
	while (poll_for(far->fd, POLLIN, 50) & POLLIN) {
		NETMAP_RXRING(far->nifp, 0)->head = NETMAP_RXRING(far->nifp, 0)->cur = NETMAP_RXRING(far->nifp, 0)->tail;
		CHECK(ioctl(far->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	}
	close_port(&own);
}

/* One descriptor has all rings of one direction, host rings included, and another one those of the other direction. */
static void
with_host_rings(struct port *far, uint32_t mode)
{
	struct port r = open_way(mode, NR_RX_RINGS_ONLY), t = open_way(mode, NR_TX_RINGS_ONLY);

	CHECK(refused(NR_REG_SW, NR_RX_RINGS_ONLY) == EBUSY, "the host rx ring is taken");
	CHECK(refused(NR_REG_SW, NR_TX_RINGS_ONLY) == EBUSY, "the host tx ring is taken");
	if (mode == NR_REG_NIC_SW)
		there_and_back(far, &r, &t, COUNT);
	close_port(&r);
	r = open_way(mode, NR_RX_RINGS_ONLY);
	close_port(&t);
	t = open_way(mode, NR_TX_RINGS_ONLY);
	if (mode == NR_REG_NIC_SW)
		there_and_back(far, &r, &t, COUNT);
	close_port(&t);
	close_port(&r);
}

int
main(int argc, char **argv)
{
	struct port far;

	CHECK(argc == 3, "two interfaces");
	alarm(60);
	near_end = argv[1];
	far = open_port(argv[2]);
	in_one_process(&far);
	in_two_processes(&far, NR_TX_RINGS_ONLY, NR_RX_RINGS_ONLY);
	in_two_processes(&far, NR_RX_RINGS_ONLY, NR_TX_RINGS_ONLY);
	with_host_rings(&far, NR_REG_SW);
	with_host_rings(&far, NR_REG_NIC_SW);
	in_one_process(&far);
	return 0;
}
