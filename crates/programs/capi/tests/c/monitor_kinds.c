/*
 * Monitors of every kind of port: their frames, the order, flags and number of rings, and the effect of the end of the watched port or the
 * watching program. The watched traffic is always complete and in order.
 *
 * Usage: monitor_kinds FROM TO [NAME ...]: two ports that are connected, and other names of FROM
 */
#define NETMAP_WITH_LIBS
#include "common.h"
#include <signal.h>
#include <sys/wait.h>

#define R NR_MONITOR_RX
#define T NR_MONITOR_TX
#define Z NR_ZCOPY_MON

/* Frames of an exchange. */
#define COUNT 100u

static const struct {
	const char *letters;
	uint64_t flags;
	int sent, received;
} ways[] = {
	{ "r", R, 0, 1 },
	{ "t", T, 1, 0 },
	{ "rt", R | T, 1, 1 },
	{ "z", Z, 1, 1 },
	{ "zr", Z | R, 1, 1 },
	{ "zt", Z | T, 1, 1 },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* The two ports. */
static const char *names[2];
static struct port ports[2];

static void
open_end(int end)
{
	ports[end] = open_port(names[end]);
}

static int
refused(const char *name, struct nmreq_register reg)
{
	int fd = device(), done = request(fd, name, NETMAP_REQ_REGISTER, &reg), why = errno;

	CHECK(done < 0, "%s is not refused", name);
	close(fd);
	return why;
}

/* Checks that the monitor has exactly these frames, in order and marked as sent or not. */
static void
expect(struct port *m, uint32_t count, int sent)
{
	struct netmap_ring *r = NETMAP_RXRING(m->nifp, 0);
	uint32_t i, seq, got = 0;

	while (got < count) {
		CHECK(poll_for(m->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, count);
		seq = got;
		for (i = r->head; i != r->tail; i = nm_ring_next(r, i))
			CHECK(!(r->slot[i].flags & NS_TXMON) == !sent, "flags 0x%x", r->slot[i].flags);
		take_frames(r, &seq);
		got = seq;
	}
	CHECK(poll_for(m->fd, POLLIN, 5) == 0, "no more than %u", count);
}

/* The rings that nm_open reports can be walked; sent frames go nowhere. */
static void
walk(const char *name, const char *letters)
{
	const char *prefix = strncmp(name, "vale", 4) == 0 ? "" : "netmap:";
	struct netmap_ring *r;
	struct nm_desc *n;
	char full[128];
	uint32_t tail;
	int i;

	snprintf(full, sizeof(full), "%s%s/%s", prefix, name, letters);
	n = nm_open(full, NULL, 0, NULL);
	CHECK(n != NULL, "nm_open %s", full);
	CHECK(n->first_tx_ring == 0 && n->last_tx_ring == 0, "%u to %u", n->first_tx_ring, n->last_tx_ring);
	CHECK(n->req.nr_tx_rings == 1 && n->nifp->ni_tx_rings == 1, "one tx ring");
	CHECK(strncmp(n->nifp->ni_name, name, strlen(name)) == 0 && n->nifp->ni_name[strlen(name)] == '/', "named %s",
	    n->nifp->ni_name);
	for (i = n->first_tx_ring; i <= n->last_tx_ring; i++)
		CHECK(nm_ring_space(NETMAP_TXRING(n->nifp, i)) > 0, "ring %d", i);
	for (i = n->first_rx_ring; i <= n->last_rx_ring; i++)
		CHECK(nm_ring_empty(NETMAP_RXRING(n->nifp, i)), "ring %d", i);
	r = NETMAP_TXRING(n->nifp, 0);
	tail = r->tail;
	CHECK(poll_for(n->fd, POLLOUT, 0) == POLLOUT, "there is room");
	CHECK(nm_inject(n, "a frame that goes nowhere", 25) == 25, "inject");
	CHECK(ioctl(n->fd, NIOCTXSYNC, NULL) == 0 && r->tail == tail, "the slot does not come back");
	CHECK(poll_for(n->fd, POLLOUT, 0) == (POLLOUT | POLLERR), "what was sent cannot be");
	nm_close(n);
}

/* Each way of watching an end, from before the traffic and from the middle of it. */
static void
seen(const char *name, int end)
{
	uint32_t k, expected;
	struct port m, late;

	for (k = 0; k < WAYS; k++) {
		m = open_port_as(name, NR_REG_ALL_NIC, ways[k].flags);
		if (ways[k].flags & Z)
			CHECK(m.reg.nr_flags == (Z | R | T) && m.reg.nr_mem_id == ports[end].reg.nr_mem_id,
			    "both directions, in the port's memory");
		else
			CHECK(m.reg.nr_mem_id != ports[end].reg.nr_mem_id, "memory of its own");
		expected = (end == 0 ? ways[k].sent : ways[k].received) ? COUNT : 0;
		exchange(&ports[0], &ports[1], COUNT);
		expect(&m, expected, end == 0);
		late = open_port_as(name, NR_REG_ALL_NIC, ways[k].flags);
		exchange(&ports[0], &ports[1], COUNT);
		expect(&m, expected, end == 0);
		expect(&late, expected, end == 0);
		/* The first monitor closes; the second sees everything as before. */
		close_port(&m);
		exchange(&ports[0], &ports[1], COUNT);
		expect(&late, expected, end == 0);
		close_port(&late);
		walk(name, ways[k].letters);
	}
}

/* A monitor that is not read loses frames, which affects nothing else. */
static void
not_read(const char *name, int end)
{
	struct port m = open_port_as(name, NR_REG_ALL_NIC, R | T), other = open_port_as(name, NR_REG_ALL_NIC, R | T);
	struct netmap_ring *r = NETMAP_RXRING(m.nifp, 0);
	uint32_t i, seq = 0;

	for (i = 0; i * COUNT < 3 * r->num_slots; i++) {
		exchange(&ports[0], &ports[1], COUNT);
		expect(&other, COUNT, end == 0);
	}
	CHECK(ioctl(m.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	CHECK(nm_ring_space(r) == r->num_slots - 1, "it is full: %u", nm_ring_space(r));
	for (i = r->head; i != r->tail; i = nm_ring_next(r, i), seq = (seq + 1) % COUNT)
		CHECK(seq_of(NETMAP_BUF(r, r->slot[i].buf_idx)) == seq, "in order");
	close_port(&m);
	close_port(&other);
}

/* The watched port closes first. */
static void
outlived(const char *name, int end)
{
	struct port m = open_port_as(name, NR_REG_ALL_NIC, R | T), z = open_port_as(name, NR_REG_ALL_NIC, Z);

	exchange(&ports[0], &ports[1], COUNT);
	expect(&m, COUNT, end == 0);
	expect(&z, COUNT, end == 0);
	close_port(&ports[end]);
	CHECK(poll_for(m.fd, POLLIN, 5000) == POLLERR, "its port is gone");
	CHECK(poll_for(z.fd, POLLIN, 5000) == POLLERR, "its port is gone");
	CHECK(ioctl(m.fd, NIOCRXSYNC, NULL) == 0 && ioctl(m.fd, NIOCTXSYNC, NULL) == 0, "as netmap's");
	open_end(end);
	exchange(&ports[0], &ports[1], COUNT);
	CHECK(poll_for(m.fd, POLLIN, 0) == POLLERR, "it has to be opened anew");
	close_port(&m);
	close_port(&z);
}

/* The program that watches is killed. */
static void
killed(const char *name, int end)
{
	struct port m;
	int status, lines[2];
	pid_t child;
	char c;

	CHECK(pipe(lines) == 0, "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		m = open_port_as(name, NR_REG_ALL_NIC, R | T);
		expect(&m, 0, 0);
		CHECK(write(lines[1], "", 1) == 1, "write");
		pause();
	}
	CHECK(read(lines[0], &c, 1) == 1, "read");
	exchange(&ports[0], &ports[1], COUNT);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child, "kill");
	exchange(&ports[0], &ports[1], COUNT);
	m = open_port_as(name, NR_REG_ALL_NIC, R | T);
	exchange(&ports[0], &ports[1], COUNT);
	expect(&m, COUNT, end == 0);
	close_port(&m);
	close(lines[0]);
	close(lines[1]);
}

/* The errno for ports that cannot be watched. */
static void
refusals(const char *name, int end)
{
	struct nmreq_register reg = { .nr_flags = R, .nr_mode = NR_REG_ONE_NIC, .nr_ringid = 60 };

	CHECK(refused(name, reg) == EINVAL, "no such ring");
	reg.nr_ringid = 0;
	reg.nr_mem_id = 4321;
	CHECK(refused(name, reg) == EINVAL, "no such memory");
	reg.nr_mem_id = 0;
	reg.nr_mode = 99;
	CHECK(refused(name, reg) == EINVAL, "no such mode");
	if (strchr(name, ':') || strchr(name, '{') || strchr(name, '}')) {
		reg.nr_mode = NR_REG_SW;
		CHECK(refused(name, reg) == EINVAL, "no host rings");
	}
	reg.nr_mode = NR_REG_ALL_NIC;
	CHECK(refused("nosuchif0", reg) == ENXIO, "no such interface");
	CHECK(refused("vale0:nobody", reg) == EINVAL, "not in use");
	CHECK(refused("nobody{1", reg) == EINVAL, "not in use");
	close_port(&ports[end]);
	CHECK(refused(names[end], reg) == EINVAL, "not in use any more");
	open_end(end);
}

/* Sizes are the port's, or the requested ones between 2 and 4096; a monitor never blocks another program. */
static void
sizes(const char *name, int end)
{
	static const uint32_t asked[][2] = { { 0, 0 }, { 32, 32 }, { 5000, 4096 }, { 4096, 4096 } };
	struct nmreq_register reg;
	struct port m, same;
	uint32_t k;

	for (k = 0; k < sizeof(asked) / sizeof(asked[0]); k++) {
		memset(&reg, 0, sizeof(reg));
		reg.nr_mode = NR_REG_ALL_NIC;
		reg.nr_flags = R | T | NR_EXCLUSIVE;
		reg.nr_rx_slots = asked[k][0];
		m = open_port_with(name, reg);
		same = open_port_with(name, reg);
		CHECK(m.reg.nr_rx_slots == (asked[k][1] ? asked[k][1] : ports[end].reg.nr_rx_slots), "%u slots",
		    m.reg.nr_rx_slots);
		CHECK(NETMAP_RXRING(m.nifp, 0)->num_slots == m.reg.nr_rx_slots, "as said");
		CHECK(m.reg.nr_tx_rings == 1 && m.reg.nr_rx_rings == ports[end].reg.nr_rx_rings, "%u and %u rings",
		    m.reg.nr_tx_rings, m.reg.nr_rx_rings);
		exchange(&ports[0], &ports[1], COUNT);
		if (m.reg.nr_rx_slots > COUNT) {
			expect(&m, COUNT, end == 0);
			expect(&same, COUNT, end == 0);
		}
		close_port(&m);
		close_port(&same);
	}
}

static void
watch(const char *name, int end)
{
	seen(name, end);
	not_read(name, end);
	killed(name, end);
	sizes(name, end);
	refusals(name, end);
	outlived(name, end);
}

int
main(int argc, char **argv)
{
	int k;

	CHECK(argc >= 3, "two ports");
	alarm(120);
	for (k = 0; k < 2; k++) {
		names[k] = argv[1 + k];
		open_end(k);
	}
	for (k = 0; k < 2; k++)
		watch(names[k], k);
	for (k = 3; k < argc; k++)
		watch(argv[k], 0);
	close_port(&ports[0]);
	close_port(&ports[1]);
	return 0;
}
