/* Numbers as people read them. */

export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit++;
  }
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

export function seconds(value: number): string {
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Math.round(value * 1e3)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

export function percent(rate: number): string {
  return rate > 0.999 && rate < 1 ? '99.9%' : `${(100 * rate).toFixed(rate > 0 && rate < 1 ? 1 : 0)}%`;
}

export function count(value: number): string {
  return value.toLocaleString('en');
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
