/* libnetmap's @extmem:file= with a file in memory: a program that maps the file sees the port's rings and frames, and a second port with the same
 * file is in the same region. A file on disk works, too, for the program itself. Usage: extmem_nmport SWITCH */
#include "common.h"
#include <libnetmap.h>
#include <sys/wait.h>

#define SIZE (8u << 20)

static struct nmport_d *
open_in(const char *sw, const char *port, const char *file)
{
	char name[160];
	struct nmport_d *d;

	snprintf(name, sizeof(name), "%.32s:%s@extmem:file=%s,if-num=8,ring-num=8@conf:slots=128", sw, port, file);
	d = nmport_open(name);
	CHECK(d != NULL, "%s", name);
	CHECK(d->nifp->ni_version == NETMAP_API && d->register_done, "open");
	return d;
}

static void
send_frames(struct nmport_d *from, struct nmport_d *to)
{
	uint32_t sent = 0, got = 0;

	while (got < 300) {
		put_frames(NETMAP_TXRING(from->nifp, 0), &sent, got + 50 < 300 ? got + 50 : 300);
		CHECK(ioctl(from->fd, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "%u frames came", got);
		take_frames(NETMAP_RXRING(to->nifp, 0), &got);
	}
}

int
main(int argc, char **argv)
{
	char shared[] = "/dev/shm/netvale-extmem-XXXXXX", disk[] = "/var/tmp/netvale-extmem-XXXXXX";
	struct nmport_d *a, *b;
	int fd, status;
	pid_t pid;

	CHECK(argc == 2, "usage");
	fd = mkstemp(shared);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0, "file");
	a = open_in(argv[1], "shm0", shared);
	b = open_in(argv[1], "shm1", shared);
	unlink(shared);
	CHECK(a->reg.nr_mem_id == b->reg.nr_mem_id && a->reg.nr_offset != b->reg.nr_offset, "regions %u and %u",
	      a->reg.nr_mem_id, b->reg.nr_mem_id);
	send_frames(a, b);
	if ((pid = fork()) == 0) {
		char *mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		struct netmap_ring *rx;

		CHECK(mem != MAP_FAILED && NETMAP_IF(mem, a->reg.nr_offset)->ni_version == NETMAP_API, "the first");
		CHECK(NETMAP_IF(mem, b->reg.nr_offset)->ni_version == NETMAP_API, "the second");
		rx = NETMAP_RXRING(NETMAP_IF(mem, b->reg.nr_offset), 0);
		CHECK(rx->num_slots == 128 && seq_of(NETMAP_BUF(rx, rx->slot[299 % 128].buf_idx)) == 299, "frames");
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child: %x", status);
	nmport_close(b);
	nmport_close(a);
	close(fd);

	fd = mkstemp(disk);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0, "file");
	a = open_in(argv[1], "disk0", disk);
	b = open_in(argv[1], "disk1", disk);
	unlink(disk);
	send_frames(a, b);
	nmport_close(b);
	nmport_close(a);
	close(fd);
	return 0;
}
