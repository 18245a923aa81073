/* Two interfaces that are opened separately share memory: a buffer received on one is sent on the other by exchanging it.
 * Usage: two_interfaces FROM IN OUT TO, where FROM and IN are a cable's ends, and OUT and TO another one's. */
#define NETMAP_WITH_LIBS
#include "common.h"
#include <libnetmap.h>

#define COUNT 2000u
#define WINDOW 100u

static void
send_some(struct port *from, uint32_t *sent, uint32_t end)
{
	put_frames(NETMAP_TXRING(from->nifp, 0), sent, end);
	CHECK(ioctl(from->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

/* Frames cross both cables. The two ports in the middle may be anything with a descriptor and rings. */
static void
cross(struct port *from, int in, struct netmap_ring *rx, int out, struct netmap_ring *tx, struct port *to)
{
	uint32_t sent = 0, got = 0;

	while (got < COUNT) {
		send_some(from, &sent, got + WINDOW < COUNT ? got + WINDOW : COUNT);
		CHECK(poll_for(in, POLLIN, 5000) & POLLIN, "%u of %u frames came in", got, COUNT);
		swap_all(rx, tx);
		CHECK(ioctl(out, NIOCTXSYNC, NULL) == 0 && ioctl(in, NIOCRXSYNC, NULL) == 0, "sync");
		CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, COUNT);
		take_frames(NETMAP_RXRING(to->nifp, 0), &got);
	}
	CHECK(ioctl(to->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void
registered_by_hand(struct port *from, struct port *to, const char *in, const char *out)
{
	struct port a = open_port(in), b = open_port(out);

	CHECK(a.reg.nr_mem_id == 1 && b.reg.nr_mem_id == 1, "regions %u and %u", a.reg.nr_mem_id, b.reg.nr_mem_id);
	CHECK(a.reg.nr_memsize == b.reg.nr_memsize && a.reg.nr_offset != b.reg.nr_offset, "one region");
	cross(from, a.fd, NETMAP_RXRING(a.nifp, 0), b.fd, NETMAP_TXRING(b.nifp, 0), to);
	close_port(&a);
	close_port(&b);
}

static void
by_libnetmap(struct port *from, struct port *to, const char *in, const char *out)
{
	char name[64];
	struct nmport_d *a, *b;

	snprintf(name, sizeof(name), "netmap:%s", in);
	CHECK((a = nmport_open(name)) != NULL, "open %s", name);
	snprintf(name, sizeof(name), "netmap:%s", out);
	CHECK((b = nmport_open(name)) != NULL, "open %s", name);
	CHECK(a->mem == b->mem, "one memory");
	cross(from, a->fd, NETMAP_RXRING(a->nifp, 0), b->fd, NETMAP_TXRING(b->nifp, 0), to);
	nmport_close(a);
	nmport_close(b);
}

static void
by_nm_open(struct port *from, struct port *to, const char *in, const char *out)
{
	char name[64];
	struct nm_desc *a, *b;

	snprintf(name, sizeof(name), "netmap:%s", in);
	CHECK((a = nm_open(name, NULL, 0, NULL)) != NULL, "open %s", name);
	snprintf(name, sizeof(name), "netmap:%s", out);
	CHECK((b = nm_open(name, NULL, NM_OPEN_NO_MMAP, a)) != NULL, "open %s", name);
	CHECK(a->req.nr_arg2 == 1 && b->req.nr_arg2 == 1 && a->mem == b->mem, "one memory, mapped once");
	cross(from, a->fd, NETMAP_RXRING(a->nifp, 0), b->fd, NETMAP_TXRING(b->nifp, 0), to);
	nm_close(b);
	nm_close(a);
}

/* A port of a switch, and a pipe, may be in the same region. */
static void
others_in_region_1(const char *in)
{
	struct port a = open_port(in), v, p;
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC, .nr_mem_id = 1 };
	char pipe_name[64];

	v = open_port_with("vale7:x", r);
	p = open_port_with("inregion1{1", r);
	CHECK(v.reg.nr_mem_id == 1 && v.reg.nr_memsize == a.reg.nr_memsize, "the switch's port");
	CHECK(p.reg.nr_mem_id == 1 && p.reg.nr_memsize == a.reg.nr_memsize, "the pipe");
	CHECK(NETMAP_TXRING(v.nifp, 0)->slot[0].buf_idx != NETMAP_TXRING(a.nifp, 0)->slot[0].buf_idx, "buffers");
	close_port(&p);
	snprintf(pipe_name, sizeof(pipe_name), "%s{1", in);
	p = open_port(pipe_name);
	CHECK(p.reg.nr_mem_id == 1 && p.reg.nr_memsize == a.reg.nr_memsize, "an interface's pipe lies where it does");
	close_port(&p);
	close_port(&v);
	close_port(&a);
}

int
main(int argc, char **argv)
{
	struct port from, to;

	CHECK(argc == 5, "four interfaces");
	alarm(60);
	from = open_port(argv[1]);
	to = open_port(argv[4]);
	registered_by_hand(&from, &to, argv[2], argv[3]);
	by_libnetmap(&from, &to, argv[2], argv[3]);
	by_nm_open(&from, &to, argv[2], argv[3]);
	others_in_region_1(argv[2]);
	/* Again, after everything was closed. */
	registered_by_hand(&from, &to, argv[2], argv[3]);
	return 0;
}
