# Writes the passwords of docker-compose.yml: those of .env, or random ones, which are kept.
set -eu
umask 227 # readable by the group, which the services share
cd /var/lib/taskqueue/credentials

write() {
    [ -n "$2" ] || [ ! -s "$1" ] || return 0
    rm -f "$1.new"
    printf %s "${2:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}" >"$1.new"
    mv -f "$1.new" "$1"
}

write redis-password "$REDIS_PASSWORD"
write grafana-password "$GRAFANA_PASSWORD"

echo "Gateway and dashboard need no sign-in while ALLOW_ANONYMOUS is true."
echo "Grafana (docker compose --profile grafana up -d): http://localhost:$GRAFANA_PORT, user admin, password $(cat grafana-password)"
echo "Redis: docker compose exec redis redis-cli"
