/* Persistent ports: one set of rings that all openers share, by either name, on a switch or not. Usage: persistent SWITCH */
#include "common.h"

static char name[16], full[80], other[80];
static int ctl;

static struct nmreq_register
mode(uint32_t m, uint16_t ring, uint64_t flags)
{
	struct nmreq_register r = { .nr_mode = m, .nr_ringid = ring, .nr_flags = flags };

	return r;
}

static int
reg(const char *port, uint32_t m, uint16_t ring, uint64_t flags, struct nmreq_register *answer)
{
	struct nmreq_register r = mode(m, ring, flags);
	int fd = device(), saved;

	if (request(fd, port, NETMAP_REQ_REGISTER, &r) == 0) {
		if (answer)
			*answer = r;
		return fd;
	}
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static int
newif(const char *port, struct nmreq_vale_newif *n)
{
	return request(ctl, port, NETMAP_REQ_VALE_NEWIF, n);
}

static int
attach(const char *port, uint16_t mem_id, uint32_t *index)
{
	struct nmreq_vale_attach a = { .reg.nr_mode = NR_REG_ALL_NIC, .reg.nr_mem_id = mem_id };
	int done;

	done = request(ctl, port, NETMAP_REQ_VALE_ATTACH, &a);
	if (index)
		*index = a.port_index;
	return done;
}

static int
detach(const char *port, uint32_t *index)
{
	struct nmreq_vale_detach d = { 0 };
	int done;

	done = request(ctl, port, NETMAP_REQ_VALE_DETACH, &d);
	if (index)
		*index = d.port_index;
	return done;
}

static void
names(void)
{
	struct nmreq_vale_newif n = { 0 };

	REFUSED(EINVAL, newif(full, &n));
	REFUSED(EINVAL, newif("sixteen.letters.", &n));
	REFUSED(EEXIST, newif("lo", &n));
	REFUSED(EINVAL, request(ctl, "lo", NETMAP_REQ_VALE_DELIF, NULL));
	REFUSED(ENXIO, request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL));
	n.nr_mem_id = 54321;
	REFUSED(EINVAL, newif(name, &n));
	n.nr_mem_id = 0;
	n.nr_tx_rings = n.nr_rx_rings = 2;
	n.nr_tx_slots = n.nr_rx_slots = 256;
	CHECK(newif(name, &n) == 0, "newif");
	CHECK(n.nr_tx_rings == 2 && n.nr_rx_slots == 256 && n.nr_mem_id > 1, "what was made: region %u", n.nr_mem_id);
	REFUSED(EEXIST, newif(name, &n));
}

/* Answers about the port, whether it is on a switch or not. */
static uint16_t
told(void)
{
	struct nmreq_port_info_get i = { 0 };
	struct nmreq_pools_info p = { 0 };
	struct nmreq_port_hdr h = { .nr_hdr_len = 77 };
	struct nmreq legacy = { 0 };

	CHECK(request(ctl, name, NETMAP_REQ_PORT_INFO_GET, &i) == 0, "info");
	CHECK(i.nr_tx_rings == 2 && i.nr_rx_rings == 2 && i.nr_tx_slots == 256 && i.nr_rx_slots == 256, "shape");
	CHECK(request(ctl, name, NETMAP_REQ_POOLS_INFO_GET, &p) == 0, "pools");
	CHECK(p.nr_mem_id == i.nr_mem_id && i.nr_mem_id > 1 && p.nr_memsize == i.nr_memsize, "region %u", p.nr_mem_id);
	CHECK(request(ctl, name, NETMAP_REQ_PORT_HDR_GET, &h) == 0 && h.nr_hdr_len == 0, "header");
	h.nr_hdr_len = 12;
	REFUSED(ENXIO, request(ctl, name, NETMAP_REQ_PORT_HDR_SET, &h));
	snprintf(legacy.nr_name, sizeof(legacy.nr_name), "%s", name);
	legacy.nr_version = NETMAP_API;
	CHECK(ioctl(ctl, NIOCGINFO, &legacy) == 0, "NIOCGINFO");
	CHECK(legacy.nr_tx_rings == 2 && legacy.nr_rx_slots == 256 && legacy.nr_arg2 == i.nr_mem_id, "the same");
	return i.nr_mem_id;
}

/* Programs share one set of rings, and their requests count. */
static void
shared(const char *by)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC, 0, 0), one = mode(NR_REG_ONE_NIC, 1, 0);
	struct port a = open_port_with(by, r), b = open_port_with(name, r), c = open_port_with(name, one);
	struct netmap_ring *mine = NETMAP_TXRING(a.nifp, 1), *theirs = NETMAP_TXRING(b.nifp, 1);
	uint32_t seq = 0, i, start = mine->head, end = (start + 10) % mine->num_slots;
	int fd;

	CHECK(a.reg.nr_mem_id == b.reg.nr_mem_id && a.reg.nr_mem_id == c.reg.nr_mem_id, "one region");
	CHECK((char *)mine - a.mem == (char *)theirs - b.mem, "one ring");
	CHECK((char *)mine - a.mem == (char *)NETMAP_TXRING(c.nifp, 1) - c.mem, "and of one ring that one");
	CHECK(c.nifp->ring_ofs[0] == 0 && c.nifp->ring_ofs[1] != 0, "no other");
	/* Frames that one program sends, the other one finds sent. */
	put_frames(mine, &seq, 10);
	for (i = 0; i < 5000 && mine->tail != (mine->head + mine->num_slots - 1) % mine->num_slots; i++) {
		CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		usleep(1000);
	}
	CHECK(theirs->head == end && nm_ring_next(theirs, theirs->tail) == end, "head %u, tail %u", theirs->head, theirs->tail);
	REFUSED(EBUSY, reg(by, NR_REG_ALL_NIC, 0, NR_EXCLUSIVE, NULL));
	REFUSED(EBUSY, request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL));
	REFUSED(EINVAL, reg(by, NR_REG_ONE_NIC, 2, 0, NULL));
	REFUSED(EINVAL, reg(by, NR_REG_SW, 0, 0, NULL));
	close_port(&a);
	close_port(&b);
	close_port(&c);
	CHECK((fd = reg(name, NR_REG_ALL_NIC, 0, NR_EXCLUSIVE, NULL)) >= 0, "alone");
	REFUSED(EBUSY, reg(by, NR_REG_ALL_NIC, 0, 0, NULL));
	close(fd);
	CHECK((fd = reg(by, NR_REG_ALL_NIC, 0, NR_EXCLUSIVE | NR_TX_RINGS_ONLY, NULL)) >= 0, "tx rings");
	close(fd);
	CHECK((fd = reg(by, NR_REG_ALL_NIC, 0, NR_EXCLUSIVE | NR_RX_RINGS_ONLY, NULL)) >= 0, "rx rings");
	close(fd);
}

static uint32_t
listed(const char *port, int *found)
{
	struct nmreq_vale_list l = { 0 };

	*found = request(ctl, port, NETMAP_REQ_VALE_LIST, &l);
	return l.nr_port_idx;
}

static void
unattached(void)
{
	struct nmreq_port_info_get i = { 0 };
	int found;

	told();
	shared(name);
	REFUSED(EINVAL, reg(full, NR_REG_ALL_NIC, 0, 0, NULL));
	REFUSED(EINVAL, request(ctl, full, NETMAP_REQ_PORT_INFO_GET, &i));
	REFUSED(ENXIO, detach(full, NULL));
	listed(full, &found);
	CHECK(found < 0 && errno == ENOENT, "there is no such switch");
	listed(name, &found);
	CHECK(found < 0 && errno == EINVAL, "it is on none");
	found = reg(name, NR_REG_ALL_NIC, 0, 0, NULL);
	REFUSED(EBUSY, attach(full, 0, NULL));
	close(found);
}

static void
attached(void)
{
	struct nmreq_port_hdr h = { .nr_hdr_len = 12 };
	struct port from, to;
	uint32_t index, gone, where, seq = 0;
	uint16_t region = told();
	int found;

	CHECK(attach(full, 0, &index) == 0, "attach");
	REFUSED(EBUSY, attach(full, 0, NULL));
	REFUSED(EBUSY, request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL));
	CHECK(told() == region, "the same region");
	where = listed(full, &found);
	CHECK(found == 0 && where == index, "at %u", where);
	where = listed(other, &found);
	CHECK(found == 0 && where == 254, "a port that is not there, on a switch that is: %u", where);
	shared(full);
	CHECK(request(ctl, full, NETMAP_REQ_PORT_HDR_SET, &h) == 0, "a header");
	REFUSED(EIO, reg(name, NR_REG_ALL_NIC, 0, 0, NULL));
	h.nr_hdr_len = 0;
	CHECK(request(ctl, full, NETMAP_REQ_PORT_HDR_SET, &h) == 0, "and none");
	from = open_port(name);
	to = open_port(other);
	exchange(&from, &to, 200);
	/* The port is deleted while a program uses it; the program keeps its rings. */
	CHECK(detach(full, &gone) == 0 && gone == index, "detach");
	REFUSED(ENXIO, detach(full, NULL));
	found = (int)NETMAP_TXRING(from.nifp, 0)->head;
	put_frames(NETMAP_TXRING(from.nifp, 0), &seq, 5);
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(poll_for(to.fd, POLLIN, 100) == 0, "what it sends now goes nowhere");
	CHECK(NETMAP_TXRING(from.nifp, 0)->head == (uint32_t)found + 5, "and is gone");
	REFUSED(EBUSY, attach(full, 0, NULL));
	/* Others cannot delete a port that its program created: the request changes nothing. */
	CHECK(detach(other, NULL) == 0, "detach of an ephemeral port");
	found = reg(other, NR_REG_ALL_NIC, 0, 0, NULL);
	CHECK(found >= 0, "it is there still");
	close(found);
	close_port(&from);
	CHECK(attach(full, 0, NULL) == 0, "and back");
	from = open_port(full);
	exchange(&from, &to, 200);
	close_port(&from);
	close_port(&to);
	CHECK(detach(full, NULL) == 0, "detach");
}

/* The port can be in another port's region. */
static void
regions(void)
{
	struct nmreq_vale_newif n = { 0 };
	struct nmreq_register r;
	struct port p = open_port(other);
	char second[16];
	int fd;

	snprintf(second, sizeof(second), "q%d", (int)getpid());
	n.nr_mem_id = p.reg.nr_mem_id;
	n.nr_tx_slots = n.nr_rx_slots = 16;
	CHECK(newif(second, &n) == 0 && n.nr_mem_id == p.reg.nr_mem_id, "from the beginning");
	CHECK((fd = reg(second, NR_REG_ALL_NIC, 0, 0, &r)) >= 0 && r.nr_mem_id == p.reg.nr_mem_id, "open");
	close(fd);
	CHECK(request(ctl, second, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	REFUSED(EINVAL, attach(full, 54321, NULL));
	close_port(&p);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 2, "usage");
	ctl = device();
	snprintf(name, sizeof(name), "p%d", (int)getpid());
	snprintf(full, sizeof(full), "%.40sx:%s", argv[1], name);
	snprintf(other, sizeof(other), "%.40sx:other", argv[1]);
	names();
	unattached();
	attached();
	regions();
	CHECK(request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	REFUSED(ENXIO, reg(name, NR_REG_ALL_NIC, 0, 0, NULL));
	close(ctl);
	return 0;
}
